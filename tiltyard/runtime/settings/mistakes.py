"""What is wrong with settings, for the people who fix it."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Key = tuple[str | int, ...]
"""The way to a value: names of tables and keys, and places in lists, which begin at 0."""


def shown(key: Key) -> str:
    """A key as people write it: `registries[0].address`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong; its `str` is one line.

    `where` is `FILE:LINE`, or the variable of the environment that it comes from. A warning is of
    something that may be meant, or that may change without an edit.
    """

    key: Key
    text: str
    hint: str = ""
    where: str = ""
    is_warning: bool = False

    def __str__(self) -> str:
        text = f"{self.text}; {self.hint}" if self.hint else self.text
        parts = (self.where, shown(self.key), f"warning: {text}" if self.is_warning else text)
        return " ".join(": ".join(filter(None, parts)).splitlines())


class SettingsError(Exception):
    """Settings cannot be used; the text has a line for each mistake."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


def unknown(key: Key, known: Iterable[str]) -> Mistake:
    """A key that there is not, with the one that may be meant."""
    near = difflib.get_close_matches(str(key[-1]), sorted(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "take it out"
    return Mistake(key, f"unknown key {key[-1]!r}", hint)


def both_or_none(here: Key, **given: object) -> Iterator[Mistake]:
    """Check two keys of a table that go together, by their values."""
    [(one, first), (other, second)] = given.items()
    if bool(first) != bool(second):
        present, absent = (one, other) if first else (other, one)
        yield Mistake((*here, present), f"goes together with {absent}", "set both or none")


def in_order(mistakes: Sequence[Mistake]) -> tuple[Mistake, ...]:
    """The first of each key, line by line: what follows from it is fixed with it."""
    first: dict[Key, Mistake] = {}
    for mistake in mistakes:
        first.setdefault(mistake.key, mistake)
    return tuple(sorted(first.values(), key=_place))


def _place(mistake: Mistake) -> tuple[str, int]:
    file, _, line = mistake.where.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (mistake.where, 0)
