"""A control plane goes on with the state directory of every released schema, and loses nothing.

`storing` wrote them to `formats/<schema>`, each when its schema was the newest.
"""

import asyncio
import json
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.pki.authority import Authority
from controlplane.pki.tickets import TicketKey
from controlplane.registries.vault import Vault
from controlplane.settings.model import Config
from controlplane.storage.engine.migrations import MIGRATIONS
from tests.controlplane.storing import DATABASE, KEYS, KNOWN, LOGIN, PASSWORD, store
from tests.support.controlplane.system import System, assert_error
from tests.support.controlplane.transactions import opened
from tests.support.fake_clock import AheadClock
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import Identity
from tiltyard.runtime.clock import SystemClock

FORMATS = Path(__file__).with_name("formats")
SCHEMAS = sorted(path.name for path in FORMATS.iterdir() if path.is_dir())

Rows = dict[str, list[dict[str, Any]]]  # All rows by table


class Kept(System):
    """A control plane that continues from a stored state, in the moment after it was stored."""

    def __init__(self, folder: Path, schema: str) -> None:
        super().__init__(folder, agents=0, node_pools=("default", "big"))
        self.schema = schema
        self.known = known_of(schema)
        self.clock = AheadClock(wall_ahead=self.known["now_ms"] / 1000 - time.time())

    async def _start_parts(self) -> None:
        put_back(self.schema, self.folder / "state")
        await super()._start_parts()
        self.tokens = self.known["tokens"]
        self.operator_token = self.known["tokens"]["operator"]


def known_of(schema: str) -> Any:
    return json.loads((FORMATS / schema / KNOWN).read_text("utf-8"))


def put_back(schema: str, state: Path) -> Path:
    """Make a state directory from a stored one; return its database."""
    source = FORMATS / schema
    path = Config(state_dir=state).database
    state.mkdir()
    for name in KEYS:
        shutil.copy(source / name, state / name)
        (state / name).chmod(0o600)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous=OFF")
        database.executescript((source / DATABASE).read_text("utf-8"))
    return path


def rows_of(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {
            name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")]
            for (name,) in tables
            if not name.startswith("sqlite_")
        }


def missing(before: Rows, after: Rows) -> list[str]:
    """List the values that are gone, by column; more columns and rows may have come."""
    lost = []
    for table, rows in before.items():
        for column in rows[0] if rows else ():
            had = Counter(repr(row[column]) for row in rows)
            has = Counter(repr(row.get(column)) for row in after.get(table, []))
            lost += [f"{table}.{column}: {value}" for value in had - has]
    return lost


async def by_name(system: Kept, kind: str) -> dict[str, Any]:
    """Return the accounts or agents that operators see, by name."""
    found = (await system.read(f"/operator/{kind}"))[f"{kind}s"]
    return {entry["name"]: entry for entry in found}


async def _migrated(path: Path) -> set[tuple[str, str, str]]:
    """Open a database, which migrates it; return the definitions in it."""
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        return set(database.execute("SELECT type, name, sql FROM sqlite_master"))


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_migration_keeps_rows_and_equals_a_new_database(schema: str, tmp_path: Path) -> None:
    path = put_back(schema, tmp_path / "state")
    before = rows_of(path)
    assert await _migrated(path) == await _migrated(tmp_path / "new.db")
    assert missing(before, rows_of(path)) == []


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_callers_continue(schema: str, tmp_path: Path) -> None:
    async with Kept(tmp_path, schema) as system:
        live = await system.read("/session/match ü")
        assert live["image"] == "game"
        assert live["location"] == "local"
        assert live["host"] == "192.0.2.1"
        assert json.loads(live["labels"]["tags"]) == {"mode": "duel"}
        assert sorted(live["port"].values()) == [20000, 20001]
        sessions = (await system.read("/session?all=true"))["sessions"]
        assert {session["id"]: session["status"] for session in sessions} == {
            "match ü": "running",
            "stopped": "exited",
            "fails": "exited",
        }
        [game] = (await system.read("/application"))["applications"]
        assert game["name"] == "game"
        assert game["regions"] == ["local", "elsewhere"]
        assert game["ports"][0]["requested"] == 7777
        tags = await system.rows("SELECT name FROM tag ORDER BY priority")
        assert tags == [("v1",), ("v2",)]
        owed = await system.rows("SELECT agent FROM stop_order WHERE confirmed_ms IS NULL")
        assert owed == [("a0",)]
        [pool] = (await system.read("/warm-pool"))["warmPools"]
        assert pool["size"] == 3
        assert pool["env"] == {"MODE": "é"}
        players = (await system.join("cleo", session="match ü")).json["players"]
        assert players == ["ann", "bert", "cleo"]
        assert (await system.call("GET", "/session", account="child")).status == 200
        assert_error(await system.call("GET", "/application", account="child"), 403)
        assert_error(await system.call("GET", "/session", account="revoked"), 401)


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_operators_continue(schema: str, tmp_path: Path) -> None:
    async with Kept(tmp_path, schema) as system:
        accounts = await by_name(system, "account")
        assert set(accounts) == {"alice", "bob", "carol"}
        assert accounts["alice"]["quota"]["sessions"] == 50
        assert accounts["alice"]["quota"]["cpu"] == 40.5
        agents = await by_name(system, "agent")
        assert agents["host-1"]["certificateExpires"] > system.known["now_ms"]
        assert agents["host-2"]["state"] == "revoked"
        assert set(agents) == {"a0", "host-1", "host-2"}
        registries = (await system.read("/operator/registry"))["registries"]
        (private,) = (registry for registry in registries if registry["name"] == "private")
        assert private["username"] == "robot"
        assert {"account.removed", "agent.revoked", "session.ended", "warm_pool.set"} <= {
            event["kind"] for event in (await system.read("/operator/audit?limit=1000"))["events"]
        }


@pytest.mark.parametrize("schema", SCHEMAS)
def test_tickets_passwords_and_certificates_stay_valid(schema: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    known = known_of(schema)
    path = put_back(schema, state)
    key = TicketKey(state / "ticket.key", SystemClock())
    kept = known["ticket"]
    asyncio.run(key.open())
    session = replace(
        SESSION,
        internal_id=kept["internal_id"],
        identity=Identity(**kept["identity"]),
        create_time=known["now_ms"] / 1000,
    )
    placed = key.read(kept["agent"], session)
    assert placed is not None
    assert placed.nano_cpus == kept["nano_cpus"]
    assert placed.memory_bytes == kept["memory_bytes"]
    vault = Vault(state / "registry.key")
    vault.load()
    [row] = [row for row in rows_of(path)["registry"] if row["name"] == "private"]
    address = str(LOGIN["address"])
    username = str(LOGIN["username"])
    assert vault.unseal(address, username, row["sealed_password"]) == PASSWORD
    authority = Authority.from_pem((state / "authority.pem").read_bytes())
    assert authority.caller(known["now_ms"] / 1000).expire > known["now_ms"] / 1000


async def test_the_next_schema_can_be_stored_with_rows_in_every_table(tmp_path: Path) -> None:
    await store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "made.db")) as database:
        database.executescript((tmp_path / DATABASE).read_text("utf-8"))
    assert [table for table, rows in rows_of(tmp_path / "made.db").items() if not rows] == []
    assert set(json.loads((tmp_path / KNOWN).read_text("utf-8"))) == set(known_of(SCHEMAS[-1]))
