"""The table of docs/games.md, which `make test-games` writes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.harness import ROOT

PAGE = ROOT / "docs" / "games.md"
BEGIN = "<!-- written by make test-games -->"
END = "<!-- by hand again -->"
_HEAD = (
    "| game | package | ports | ready after | answers after | joined | exit code of a stop | saved"
    " | memory | played on |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)
_ROW = re.compile(r"^\| \[(?P<game>[^\]]+)\].*\|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """What was seen of a game."""

    game: str
    package: str
    version: str
    ports: Sequence[str]
    ready: float  # Seconds from the request until it had bound its ports
    answered: float  # Seconds from then until its first answer
    joined: str
    exit_code: int
    saved: str
    memory: int  # Resident bytes of its processes, after it was played
    date: str

    def __str__(self) -> str:
        cells = [
            f"[{self.game}](examples/games/{self.game}/Dockerfile)",
            f"`{self.package}` {self.version}",
            ", ".join(self.ports),
            f"{self.ready:.1f} s",
            f"{self.answered:.2f} s",
            self.joined or "only asked",
            str(self.exit_code),
            f"`{self.saved}`" if self.saved else "",
            f"{self.memory / 2**20:.0f} MiB",
            self.date,
        ]
        return f"| {' | '.join(cells)} |"


def rows(page: str) -> dict[str, str]:
    """The lines of the table by game."""
    written = page.partition(BEGIN)[2].partition(END)[0]
    return {found["game"]: found[0] for found in _ROW.finditer(written)}


def with_row(page: str, row: Row) -> str:
    """Return the page with this row instead of, or besides, that of the same game."""
    before, _, rest = page.partition(BEGIN)
    known = rows(page) | {row.game: str(row)}
    lines = "\n".join(line for _, line in sorted(known.items()))
    return f"{before}{BEGIN}\n\n{_HEAD}{lines}\n\n{END}{rest.partition(END)[2]}"
