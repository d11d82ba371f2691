"""Tables for people: aligned columns, sizes, times and spans that can be read. Pure."""

from collections.abc import Iterable, Sequence

NOTHING = "-"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Give the lines of a table; every cell is one line of text without control characters."""
    cells = [list(heads), *([printable(cell) or NOTHING for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def sheet(values: Iterable[tuple[str, str]]) -> list[str]:
    """Give the lines that show one thing, a name and its value a line."""
    pairs = list(values)
    width = max((len(name) for name, _ in pairs), default=0) + 2
    return [f"{name:{width}}{printable(value) or NOTHING}" for name, value in pairs]


def printable(text: str) -> str:
    r"""Escape what a terminal would act on rather than show: `\x1b`, `\u202e`, `\n`."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def size(count: int) -> str:
    """Show bytes."""
    amount, units = float(count), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while amount >= 1024 and (larger := next(units, None)) is not None:
        amount, unit = amount / 1024, larger
    return f"{amount:.4g} {unit}"


def cores(nano_cpus: int) -> str:
    """Show cores from billionths of one."""
    return f"{nano_cpus / 10**9:.4g}"


def span(seconds: float) -> str:
    """Show how long from now, in its two largest units: `2 h 5 min`, or `3 s ago`."""
    whole = round(abs(seconds))
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    shown = " ".join(parts[:2]) or "0 s"
    return f"{shown} ago" if seconds < 0 and parts else shown
