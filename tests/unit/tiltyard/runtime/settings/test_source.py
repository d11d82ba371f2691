"""Settings as they are written, and what is told of those that cannot be read."""

from pathlib import Path

import pytest

from tiltyard.runtime.settings.mistakes import Mistake, SettingsError, shown, unknown
from tiltyard.runtime.settings.source import MAX_BYTES, read_source

KEYS = ("a", "b", "c")


def test_the_environment_goes_before_the_file_and_each_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("a = 1\nb = [\n  2,\n]\n")
    source = read_source(path, {"P_A": "7", "P_D": "no key", "PATH": "x"}, "P_", KEYS)
    assert source.table == {"a": 1, "b": [2]}
    assert source.environment == {"a": "7"}
    assert [source.where((key,)) for key in KEYS] == ["P_A", f"{path}:2", "default"]
    assert source.where(("b", 0)) == f"{path}:2"
    assert source.where(("b", 9, "x")) == f"{path}:2"
    assert source.located(Mistake(("c",), "is missing")).where == str(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a = 1\n\nb = ", ":3: cannot read "),
        (b"a = 1\na = 2\n", ":2: cannot read "),
        (b'a = """\n\n', ":3: cannot read "),
        (b"a = " + b"[" * 10000, "recursion"),
        (b"a = " + b"9" * 5000, "5000 digits"),
        (b"a = '\xff'", "it is not UTF-8 at byte 5"),
        (b"#" * (MAX_BYTES + 1), f"it has more than {MAX_BYTES} bytes"),
    ],
)
def test_an_invalid_file_is_reported_with_its_line(
    tmp_path: Path, content: bytes, told: str
) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        read_source(path, {}, "P_", KEYS)
    assert told in str(raised.value).replace(str(path), "", 1)
    assert str(raised.value).count("\n") == 0


@pytest.mark.parametrize("name", ["absent", "\0", "."])
def test_a_file_that_is_none_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        read_source(tmp_path / name, {}, "P_", KEYS)


def test_a_mistake_is_one_line_whatever_it_quotes() -> None:
    mistake = Mistake(("a", 0, "b"), "is\nwrong", "fix\u2028it", "f:1", is_warning=True)
    assert str(mistake) == "f:1: a[0].b: warning: is wrong; fix it"
    assert shown(()) == ""


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("max_sesions", "did you mean 'max_sessions'?"),
        ("maxsessions", "did you mean 'max_sessions'?"),
        ("colour", "take it out"),
    ],
)
def test_an_unknown_key_may_be_a_known_one(key: str, hint: str) -> None:
    assert unknown((key,), ["max_sessions", "cpu"]).hint == hint
