"""Today's control plane goes on with what any released one has left, and loses nothing."""

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from controlplane.pki.authority import Authority
from controlplane.pki.tickets import TicketKey
from controlplane.registries.vault import Vault
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from controlplane.storage.engine.store import Store
from tests.controlplane.kept_formats import FORMATS, SCHEMAS, Kept, missing, put_back, rows_of
from tests.controlplane.storing import DATABASE, KNOWN, LOGIN, PASSWORD, store
from tests.support.controlplane.system import assert_error
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import Identity
from tiltyard.runtime.clock import SystemClock

"""Of each migration that was released the SHA-256 of its text, in their order."""


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_every_row_of_a_kept_database_comes_over(schema: str, tmp_path: Path) -> None:
    path = put_back(schema, tmp_path / "state")
    before = rows_of(path)
    await _opened(path)
    after = rows_of(path)
    assert missing(before, after) == []
    assert {table: len(rows) for table, rows in before.items()}.items() <= {
        table: len(rows) for table, rows in after.items()
    }.items()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


async def _opened(path: Path) -> None:
    opened = Store(path)
    await opened.open()
    await opened.close()


def _migrated(path: Path) -> set[tuple[str, str, str]]:
    """Bring a database up to the newest schema; give what it is made of."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous=OFF")
        migrate(Database(database))
        return set(database.execute("SELECT type, name, sql FROM sqlite_master"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_kept_database_becomes_what_a_new_one_is(schema: str, tmp_path: Path) -> None:
    path = put_back(schema, tmp_path / "state")
    assert _migrated(path) == _migrated(tmp_path / "new.db")


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_callers_go_on_where_they_were(schema: str, tmp_path: Path) -> None:
    async with Kept(tmp_path, schema) as system:
        live = (await system.call("GET", "/session/match ü")).json
        assert (live["image"], live["location"], live["host"]) == ("game", "local", "192.0.2.1")
        assert json.loads(live["labels"]["tags"]) == {"mode": "duel"}
        assert sorted(live["port"].values()) == [20000, 20001]
        listed = (await system.call("GET", "/session?all=true")).json["sessions"]
        assert {each["id"]: each["status"] for each in listed} == {
            "match ü": "running",
            "stopped": "exited",
            "fails": "exited",
        }
        [game] = (await system.call("GET", "/application")).json["applications"]
        assert (game["name"], game["regions"]) == ("game", ["local", "elsewhere"])
        assert game["ports"][0]["requested"] == 7777
        tags = await system.rows("SELECT name, enabled FROM tag ORDER BY priority")
        assert tags == [("v1", 1), ("v2", 1)]
        owed = await system.rows("SELECT agent FROM unanswered WHERE stopped_ms IS NULL")
        assert owed == [("a0",)]
        path, token = "/operator/agent/a0", system.operator_token
        assert (await system.call("GET", path, token=token)).status == 200


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_operators_go_on_where_they_were(schema: str, tmp_path: Path) -> None:
    async with Kept(tmp_path, schema) as system:

        async def read(path: str) -> Any:
            answer = await system.call("GET", f"/operator/{path}")
            assert answer.status == 200, answer.text
            return answer.json

        accounts = {each["name"]: each["quota"] for each in (await read("account"))["accounts"]}
        assert set(accounts) == {"alice", "bob", "carol"}
        assert (accounts["alice"]["sessions"], accounts["alice"]["cpu"]) == (50, 40.5)
        agents = {each["name"]: each for each in (await read("agent"))["agents"]}
        assert agents["host-1"]["certificateExpires"] > system.known["now_ms"]
        assert agents["host-2"]["state"] == "revoked"
        assert "host-3" not in agents
        registries = {each["name"]: each for each in (await read("registry"))["registries"]}
        assert registries["private"]["username"] == "robot"
        events = (await read("audit?limit=1000"))["events"]
        assert {"account.removed", "agent.revoked", "session.ended", "warm_pool.set"} <= {
            event["kind"] for event in events
        }
        [pool] = (await system.call("GET", "/warm-pool")).json["warmPools"]
        assert (pool["size"], pool["env"]) == (3, {"MODE": "é"})
        joined = {"session": "match ü", "players": ["cleo"]}
        players = (await system.call("PUT", "/session/player/join", json=joined)).json["players"]
        assert players == ["ann", "bert", "cleo"]
        child = {"token": system.known["tokens"]["child"]}
        assert (await system.call("GET", "/session", **child)).status == 200
        assert_error(await system.call("GET", "/application", **child), 403)
        revoked = {"token": system.known["tokens"]["revoked"]}
        assert_error(await system.call("GET", "/session", **revoked), 401)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_was_signed_and_sealed_is_still_good(schema: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    path = put_back(schema, state)
    known = json.loads((FORMATS / schema / KNOWN).read_text("utf-8"))
    key, kept = TicketKey(state / "ticket.key", SystemClock()), known["ticket"]
    asyncio.run(key.open())
    names, ticket = ("account", "session_id", "application"), kept["ticket"]
    account, session_id, application = (kept[name] for name in names)
    identity = Identity(account, session_id, application, "", "", {}, ticket=ticket)
    session = replace(SESSION, internal_id=kept["internal_id"], identity=identity)
    assert key.is_ours(kept["agent"], replace(session, create_ms=known["now_ms"]))
    vault = Vault(state / "registry.key")
    vault.load()
    [row] = [row for row in rows_of(path)["registry"] if row["name"] == "private"]
    address, username = str(LOGIN["address"]), str(LOGIN["username"])
    assert vault.unseal(address, username, row["sealed_password"]) == PASSWORD
    authority = Authority.from_pem((state / "authority.pem").read_bytes())
    assert authority.caller(known["now_ms"] / 1000).expire > known["now_ms"] / 1000


async def test_the_next_schema_can_be_stored_with_rows_in_every_table(tmp_path: Path) -> None:
    await store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "made.db")) as database:
        database.executescript((tmp_path / DATABASE).read_text("utf-8"))
    made = rows_of(tmp_path / "made.db")
    assert [table for table, rows in made.items() if not rows] == []
    known = json.loads((tmp_path / KNOWN).read_text("utf-8"))
    assert set(known) == set(json.loads((FORMATS / SCHEMAS[-1] / KNOWN).read_text("utf-8")))
