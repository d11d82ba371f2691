"""Where keys of a TOML file stand: as the writer of the file knows it."""

import tomllib

import pytest

from tiltyard.runtime.settings.lines import lines_of
from tiltyard.runtime.settings.mistakes import Key

FILE = '''\
# a comment with """ and [brackets]
first = 1
  indented = "x = 1"  # [not.a.table]
"quoted key" = 1
'single.quoted' = 2
dotted.inner."last.one" = 3
long = """
[table]
first = 2
\\"""
"""
literal = \'\'\'
key = 1
\'\'\'
list = [
  1, # ]
  "]",
  { inline = [
    2 ] },
]

[table]
first = 3

[[array]]
name = "a"
[array.inner]
deep = 1
[[array.nested]]
x = 1
[[array.nested]]
x = 2
[[array]]
name = "b"
[array.inner]
deep = 2
[[array.nested]]
x = 3
[ a . "b c" ]
last = 1
'''


def test_each_key_has_the_line_on_which_it_is_set() -> None:
    tomllib.loads(FILE)
    found = lines_of(FILE)
    by_text = dict(enumerate(FILE.split("\n"), start=1))
    shown = {key: by_text[line] for key, line in found.items()}
    assert shown["first",] == "first = 1"
    assert shown["indented",] == '  indented = "x = 1"  # [not.a.table]'
    assert shown["quoted key",] == '"quoted key" = 1'
    assert shown["single.quoted",] == "'single.quoted' = 2"
    names: Key = ("dotted", "inner", "last.one")
    for length in range(1, 4):
        assert shown[names[:length]] == 'dotted.inner."last.one" = 3'
    assert shown["long",] == 'long = """'
    assert shown["literal",] == "literal = '''"
    place: Key = ("list", 2, "inline", 0)
    for length in range(1, 5):
        assert shown[place[:length]] == "list = ["
    assert shown["table",] == "[table]"
    assert shown["table", "first"] == "first = 3"
    assert shown["array", 0, "name"] == 'name = "a"'
    assert shown["array", 1, "name"] == 'name = "b"'
    assert shown["array", 0, "inner", "deep"] == "deep = 1"
    assert shown["array", 1, "inner", "deep"] == "deep = 2"
    nested = [("array", 0, "nested", 0, "x"), ("array", 0, "nested", 1, "x")]
    assert [shown[key] for key in [*nested, ("array", 1, "nested", 0, "x")]] == [
        "x = 1",
        "x = 2",
        "x = 3",
    ]
    assert shown["a", "b c", "last"] == "last = 1"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_end_of_a_line_may_be_one_of_two(end: str) -> None:
    assert lines_of(end.join(["", "a = 1", "", "b = [", "]"])) == {("a",): 2, ("b",): 4}


def test_a_separator_within_a_text_is_no_end_of_a_line() -> None:
    assert lines_of('a = "\u2028\x85"\nb = 1') == {("a",): 1, ("b",): 2}
