from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from tiltyard.runtime import settings


class Table(settings.Settings):
    name: str


class Model(settings.Settings):
    count: Annotated[int, Field(gt=0)] = 1
    names: settings.Words[str] = ()
    tables: tuple[Table, ...] = ()


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text('count = 2\nnames = ["x"]\n')
    found = settings.read_settings(Model, path, {"P_COUNT": "7", "COUNT": "8"}, "P_")
    assert found == Model(count=7, names=("x",))
    assert settings.read_settings(Model, None, {"P_NAMES": "a,b,"}, "P_").names == ("a", "b")


def test_reports_all_mistakes_with_their_locations(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("countt = 1\nnames = [1]\n[[tables]]\nnam = 'x'\n")
    with pytest.raises(settings.SettingsError) as raised:
        settings.read_settings(Model, path, {"P_COUNT": "0", "P_NAME": "x"}, "P_")
    assert str(raised.value).splitlines() == [
        "P_NAME: unknown variable; did you mean P_NAMES?",
        "P_COUNT: count: Input should be greater than 0",
        f"{path}:2: names[0]: Input should be a valid string",
        f"{path}:3: tables[0].name: is missing",
        f"{path}:4: tables[0].nam: unknown key; did you mean name?",
        f"{path}:1: countt: unknown key; did you mean count?",
    ]


def test_finds_the_lines_of_keys_and_tables() -> None:
    text = '[[a]]\nx = 1\n[b.c]\n"y" = 2\n\n[[a]]\n# x = 3\nx = { z = 4 }\n'
    assert settings.lines_of(text) == {
        ("a", 0): 1,
        ("a", 0, "x"): 2,
        ("b", "c"): 3,
        ("b", "c", "y"): 4,
        ("a", 1): 6,
        ("a", 1, "x"): 8,
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = 1\n\nb = ", "at end of document"),
        (b"a = 1\na = 2\n", "at line 2"),
        (b"a = " + b"[" * 10000, "recursion"),
        (b"a = " + b"9" * 5000, "5000 digits"),
        (b"a = '\xff'", "can't decode byte"),
    ],
)
def test_reports_an_invalid_file_in_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(content)
    with pytest.raises(settings.SettingsError, match=problem) as raised:
        settings.read_toml(path)
    assert str(raised.value).startswith(f"cannot read {path}: ")
    assert str(raised.value).count("\n") == 0


@pytest.mark.parametrize("name", ["absent", "\0", "."])
def test_reports_an_unreadable_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(settings.SettingsError, match="cannot read"):
        settings.read_toml(tmp_path / name)


def test_mistake_is_always_one_line() -> None:
    mistake = settings.Mistake(("a", 0, "b"), "is\nwrong\u2028here", "f")
    assert str(mistake) == "f: a[0].b: is wrong here"
