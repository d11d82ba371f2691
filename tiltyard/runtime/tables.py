"""Output of commands: tables and sizes for terminals, and what is left if it fails."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

NOTHING = "-"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a table as lines; unprintable characters in cells are escaped."""
    cells = [list(heads), *([printable(cell) or NOTHING for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def sheet(values: Iterable[tuple[str, str]]) -> list[str]:
    """Format one object as lines, each a name and its value."""
    pairs = list(values)
    width = max((len(name) for name, _ in pairs), default=0) + 2
    return [f"{name:{width}}{printable(value) or NOTHING}" for name, value in pairs]


def printable(text: str) -> str:
    r"""Escape unprintable characters: `\x1b`, `\u202e`, `\n`."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def size(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    units = iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while amount >= 1024 and (larger := next(units, None)) is not None:
        amount /= 1024
        unit = larger
    return f"{amount:.4g} {unit}"


def cores(nano_cpus: int) -> str:
    """Format billionths of a core as cores."""
    return f"{nano_cpus / 10**9:.4g}"


def discard_buffer(stream: TextIO) -> None:
    """Discard buffered output, which Python would otherwise flush at exit, with a traceback."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
