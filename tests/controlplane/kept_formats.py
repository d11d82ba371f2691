"""State directories as control planes of earlier schemas left them: `formats/<schema>`.

`storing` wrote them, each when its schema was the newest.
"""

import json
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from controlplane.settings.model import Config
from tests.controlplane.storing import DATABASE, KEYS, KNOWN
from tests.support.controlplane.system import System
from tests.support.fake_clock import AheadClock

FORMATS = Path(__file__).with_name("formats")
SCHEMAS = sorted(path.name for path in FORMATS.iterdir() if path.is_dir())

Rows = dict[str, list[dict[str, Any]]]
"""All rows of all tables."""


class Kept(System):
    """A control plane of today that goes on where another ended, in the moment after that."""

    def __init__(self, folder: Path, schema: str) -> None:
        super().__init__(folder, agents=0, node_pools=("default", "big"))
        self.schema = schema
        self.known = json.loads((FORMATS / schema / KNOWN).read_text("utf-8"))
        self.clock = AheadClock(wall_ahead=self.known["now_ms"] / 1000 - time.time())

    async def _start_parts(self) -> None:
        put_back(self.schema, self.folder / "state")
        await super()._start_parts()
        self.tokens = self.known["tokens"]
        self.operator_token = self.known["tokens"]["operator"]


def put_back(schema: str, state: Path) -> Path:
    """Make a state directory of one that was kept; give its database."""
    source, path = FORMATS / schema, Config(state_dir=state).database
    state.mkdir()
    for name in KEYS:
        if (source / name).exists():
            shutil.copy(source / name, state / name)
            (state / name).chmod(0o600)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous=OFF")
        database.executescript((source / DATABASE).read_text("utf-8"))
    return path


def rows_of(path: Path) -> Rows:
    """What a database has."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {
            name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")]
            for (name,) in tables
            if not name.startswith("sqlite_")
        }


def missing(before: Rows, after: Rows) -> list[str]:
    """What is not there any more of every row, whatever has come to it."""
    lost = []
    for table, rows in before.items():
        for column in rows[0] if rows else ():
            had = Counter(repr(row[column]) for row in rows)
            has = Counter(repr(row.get(column)) for row in after.get(table, []))
            lost += [f"{table}.{column}: {value}" for value in had - has]
    return lost
