"""Values of a settings file, read into the fields of a dataclass by the kinds of its defaults."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from controlplane.domain.errors import ConfigError
from tiltyard.runtime.settings.mistakes import Key, Mistake, unknown

Entry = TypeVar("Entry")
Reader = Callable[[Key, Any, Any], object]
"""Reads the value of a key, whose default says of what kind it is; raises ConfigError."""


@dataclass(slots=True)
class Values:
    """What was read, by the names of fields, and all that was wrong."""

    found: dict[str, Any] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def read(self, key: Key, read: Reader, value: object, default: object) -> None:
        """Read the value of a key for the field of its last name."""
        try:
            self.found[str(key[-1])] = read(key, value, default)
        except ConfigError as error:
            self.mistakes.extend(error.mistakes)

    def fitting(self) -> dict[str, Any]:
        """Give the values of the keys at the top of which nothing is wrong so far."""
        wrong = {mistake.key[0] for mistake in self.mistakes if mistake.key}
        return {name: value for name, value in self.found.items() if name not in wrong}


def read_scalar(key: Key, value: object, default: object) -> object:
    """Read a value of a file; a list is one of strings.

    Raises:
        ConfigError: It is of another kind than the default.
    """
    if isinstance(default, tuple):
        return _strings(key, value)
    if isinstance(default, Path) and isinstance(value, str):
        return Path(value)
    if isinstance(default, float) and type(value) in {int, float}:
        return _finite(key, str(value), default)
    if type(value) is not type(default):
        raise _wrong(key, default)
    return value


def read_text(key: Key, text: str, default: object) -> object:
    """Read a value of the environment.

    Raises:
        ConfigError: It is of another kind than the default.
    """
    try:
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return _finite(key, text, default)
    except ValueError:
        raise _wrong(key, default) from None
    return Path(text) if isinstance(default, Path) else text


def read_entries(
    kind: type[Entry],
    here: Key,
    value: object,
    prepared: Callable[[Key, Mapping[str, object]], dict[str, object]] | None = None,
    rules: Callable[[Entry, Key], Iterable[Mistake]] = lambda _, __: (),
) -> tuple[Entry, ...]:
    """Read an array of tables, whose keys are the fields of `kind`.

    `prepared` gives a table in which files that it names are read, `rules` tell what is wrong with
    an entry by itself.

    Raises:
        ConfigError: Keys of it are unknown, missing or of another kind; all of them are told.
    """
    entries: list[Entry] = []
    mistakes: list[Mistake] = []
    for number, table in enumerate(_list(here, value)):
        try:
            entries.append(_entry(kind, (*here, number), table, prepared))
            mistakes.extend(rules(entries[-1], (*here, number)))
        except ConfigError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise ConfigError(*mistakes)
    return tuple(entries)


def _entry(
    kind: type[Entry],
    here: Key,
    table: object,
    prepared: Callable[[Key, Mapping[str, object]], dict[str, object]] | None,
) -> Entry:
    if not isinstance(table, dict):
        raise ConfigError(Mistake(here, "must be a table"))
    values = Values()
    try:
        table = table if prepared is None else prepared(here, table)
    except ConfigError as error:
        values.mistakes.extend(error.mistakes)
    named = {mistake.key[-1] for mistake in values.mistakes}
    known = {each.name: each.default for each in fields(kind)}  # type: ignore[arg-type]
    for key, item in table.items():
        if key in known:
            values.read((*here, key), _item, item, known[key])
        elif key not in named:
            values.mistakes.append(unknown((*here, key), known))
    values.mistakes.extend(_missing(here, table, known))
    if values.mistakes:
        raise ConfigError(*values.mistakes)
    return kind(**values.found)


def _missing(here: Key, table: object, known: Mapping[str, object]) -> Iterator[Mistake]:
    assert isinstance(table, dict)
    for key, default in known.items():
        if default is MISSING and key not in table:
            yield Mistake((*here, key), "is missing", "set it")


def _item(key: Key, value: object, default: object) -> object:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigError(Mistake(key, "must be true or false"))
        return value
    if isinstance(default, tuple):
        return _strings(key, value)
    if not isinstance(value, str) or not value:
        raise ConfigError(Mistake(key, "must be a string"))
    return value


def _finite(key: Key, text: str, default: float) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _wrong(key, default)
    return number


def _list(key: Key, value: object) -> list[object]:
    if not isinstance(value, list):
        raise ConfigError(Mistake(key, "must be a list"))
    return value


def _strings(key: Key, value: object) -> tuple[str, ...]:
    items = _list(key, value)
    for number, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise ConfigError(Mistake((*key, number), "must be a string in a list of strings"))
    return tuple(map(str, items))


def _wrong(key: Key, default: object) -> ConfigError:
    kinds: dict[type, str] = {int: "a whole number", float: "a finite number"}
    text = f"must be {kinds.get(type(default), 'a string')}"
    return ConfigError(
        Mistake(key, text, f"correct it, or take it out for the default, {default}")
    )
