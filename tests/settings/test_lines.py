"""Where keys of a TOML file stand: as the writer of the file knows it."""

import json
import tomllib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


NAMES = st.sampled_from(["a", "b", "a.b", "[x]", "#", '"', "'''", "", "é", "= 1"])
TEXTS = st.text(st.sampled_from(["a", "=", "[", "]", "#", "\n", '"', "'", "\\", " ", "{"]))
COMMENTS = st.sampled_from(["", "# x = 1", '# """', "#[a]", "   "])


@dataclass
class Writer:
    """Writes a file, and knows where it has written what."""

    text: str = ""
    written: dict[Key, int] = field(default_factory=dict)

    def write(self, keys: list[Key], statement: str) -> None:
        line = self.text.count("\n") + 1
        for key in keys:
            self.written.setdefault(key, line)
        self.text += statement + "\n"


def _name(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


@st.composite
def _value(draw: st.DrawFn) -> str:
    text = draw(TEXTS)
    whole = json.dumps(text)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return '"""\n' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'
    if kind == 1:
        return "'''\n" + text.replace("'", "") + "'''"
    if kind == 2:
        return f"[\n  {whole}, # ]\n\n  [ 1,\n 2 ],\n]"
    return whole if kind == 3 else "2026-11-21 07:32:00"


@st.composite
def _files(draw: st.DrawFn) -> Writer:
    writer = Writer()
    _keys(draw, writer, ())
    arrays: dict[str, int] = {}
    for name in draw(st.lists(NAMES.map("t{}".format), unique=True, max_size=3)):
        if draw(st.booleans()):
            for number in range(draw(st.integers(1, 3))):
                arrays[name] = number
                _comment(draw, writer)
                writer.write([(name,), (name, number)], f"[[ {_name(name)} ]]")
                _keys(draw, writer, (name, number))
        else:
            inner = draw(NAMES)
            writer.write([(name,), (name, inner)], f"[{_name(name)} . {_name(inner)}] # {{")
            _keys(draw, writer, (name, inner))
    for name, number in arrays.items():
        if draw(st.booleans()):
            writer.write([(name, number, "late")], f"  [{_name(name)}.late]")
            _keys(draw, writer, (name, number, "late"))
    return writer


def _comment(draw: st.DrawFn, writer: Writer) -> None:
    writer.write([], draw(COMMENTS))


def _keys(draw: st.DrawFn, writer: Writer, table: Key) -> None:
    for name in draw(st.lists(NAMES.map("k{}".format), unique=True, max_size=3)):
        _comment(draw, writer)
        keys: list[Key] = [(*table, name)]
        shown = _name(name)
        if draw(st.booleans()):
            inner = draw(NAMES)
            keys.append((*table, name, inner))
            shown += f" . {_name(inner)}"
        writer.write(keys, f"{shown} = {draw(_value())}")


def _paths(value: Any, before: Key = ()) -> set[Key]:
    if not isinstance(value, dict | list):
        return set()
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found: set[Key] = set()
    for part, content in inner:
        found |= {(*before, part)} | _paths(content, (*before, part))
    return found


@given(_files())
def test_whatever_is_written_is_found_where_it_was_written(file: Writer) -> None:
    found = lines_of(file.text)
    assert found.keys() == _paths(tomllib.loads(file.text))
    assert {key: found[key] for key in file.written} == file.written
