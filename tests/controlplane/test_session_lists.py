"""Lists of sessions: filtered by the database, by index, with counts that are always right."""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import ConflictError, NotFoundError, StoreError
from controlplane.domain.hosts.contract import TicketContents
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.claims import ClaimedStandby
from controlplane.domain.sessions.sessions import NewSession, SessionFilter
from controlplane.fleet.host.reports import Reports
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.dialect import SQLITE
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import players, session_lists, sessions
from controlplane.storage.tables.sessions.session_ends import end_all_missing
from controlplane.storage.tables.sessions.session_lists import (
    Query,
    find,
    list_query,
    portion_query,
)
from controlplane.storage.tables.sessions.session_rows import remove_ended
from controlplane.storage.tables.sessions.sessions import reserve, session_of
from tests.support.controlplane.system import System, assert_error
from tests.support.controlplane.transactions import connection_of, new_database, opened, run_sql
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import EndReason, Identity, Resources, State

IDENTITY = Identity("alice", "", "game", "v1", "local", {})


def new_session(session_id: str, created: float = 0.0, **fields: Any) -> NewSession:
    identity = replace(IDENTITY, session_id=session_id, **fields)
    return NewSession(identity, Resources(1, 1), created, Actor("x"))


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    made = new_database()
    made.execute("PRAGMA foreign_keys=ON")
    made.execute("INSERT INTO account(name, created_ms) VALUES ('alice', 0), ('bob', 0)")
    yield made
    made.close()


# ---- how the database finds them

_ALL = "live_session_by_account (account=? AND ended_ms=? AND number>?"
_SOME = "live_session_by_{0} (account=? AND {0}=? AND ended_ms=? AND rowid>?"
FILTERS = [
    ({}, _ALL),
    ({"location": "local"}, _ALL),
    ({"application": "game", "tag": "v1"}, _SOME.format("application")),
    ({"tag": "v1", "host": "192.0.2.1"}, _SOME.format("tag")),
    ({"more_players_than": 1, "fewer_players_than": 9}, _ALL),
]
LABELLED = "PRIMARY KEY (account=? AND name=? AND value=?"


def _plan(db: Database, query: Query) -> list[str]:
    sql, values = query
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def _searches(db: Database, wanted: SessionFilter) -> Iterator[str]:
    """Yield how the rows of the first, then of the next portion are found."""
    for query in (list_query(SQLITE, wanted, 5, 9), portion_query(wanted, 5)):
        (search,) = (step for step in _plan(db, query) if "session" in step)
        yield search


@pytest.mark.parametrize(("fields", "index"), FILTERS)
def test_a_list_looks_at_no_rows_but_those_that_an_index_finds(
    db: Database, fields: dict[str, Any], index: str
) -> None:
    wanted = SessionFilter("alice", **fields)
    for search in _searches(db, wanted):
        assert search.startswith("SEARCH session USING ")
        assert index in search
    assert len(_plan(db, list_query(SQLITE, wanted))) == 1


@pytest.mark.parametrize(
    "fields",
    [
        *(fields for fields, _ in FILTERS),
        {"labels": {"a": "b", "c": "d"}},
    ],
)
def test_list_with_ended_ones_looks_at_account_rows(db: Database, fields: dict[str, Any]) -> None:
    wanted = SessionFilter("alice", ended_too=True, **fields)
    for search in _searches(db, wanted):
        assert "session_by_account (account=? AND rowid>?" in search
    _, *rest = _plan(db, list_query(SQLITE, wanted))
    assert len(rest) == 2 * len(fields.get("labels", ()))  # a label is looked for in its row
    assert not any("TEMP B-TREE" in step for step in rest)


def test_a_list_by_labels_looks_at_the_rows_that_have_the_first(db: Database) -> None:
    wanted = SessionFilter("alice", labels={"a": "b", "c": "d"}, application="game")
    session, _, labelled, *others = _plan(db, list_query(SQLITE, wanted, 5, 9))
    assert "session USING INDEX session_by_end (ended_ms=? AND rowid=?)" in session
    assert f"live_label USING {LABELLED} AND number>? AND number<?)" in labelled
    (found,) = (step for step in others if "CORRELATED" not in step)
    assert "live_label" in found
    assert "number=?" in found
    portion = _plan(db, portion_query(wanted, 5))
    assert any(f"live_label USING {LABELLED} AND number>?)" in step for step in portion)
    assert not any("TEMP B-TREE" in step for step in portion)


def test_what_a_quota_sums_up_is_in_an_index(db: Database) -> None:
    traced: list[str] = []
    db.execute("UPDATE account SET quota_sessions=9 WHERE name='alice'")
    connection_of(db).set_trace_callback(traced.append)
    db.execute("SAVEPOINT one")
    reserve(db, new_session("x"))
    db.execute("ROLLBACK TO one")
    connection_of(db).set_trace_callback(None)
    db.execute("UPDATE account SET quota_sessions=NULL")
    (sums,) = (sql for sql in traced if "sum(" in sql)
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sums}")]
    assert plan == [
        "SEARCH session USING COVERING INDEX live_session_by_account (account=? AND ended_ms=?)"
    ]


# ---- what they hold

_ODD = ("", "$", "__proto__", "a.b", 'a"b', "a\\b", "'; --", "e\u0301", "🎮", "A", "a", "%")
_NAMES = st.sampled_from(_ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
_LABELS = st.dictionaries(_NAMES, _NAMES, max_size=4)
_TEXTS = st.sampled_from(["a", "A", "b", "", "\ud800"])
_EDGES = [2**63 - 1, 2**63, -(2**63) - 1, 10**4000]
_BOUNDS = st.integers(-2, 4) | st.integers() | st.sampled_from(_EDGES)
_SESSIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "account": st.sampled_from(["alice", "alice", "alice", "bob"]),
        "location": st.sampled_from("aAb"),
        "application": st.sampled_from("aAb"),
        "tag": st.sampled_from("aAb"),
        "labels": _LABELS,
        "created": st.integers(0, 3),
    }
)
_MORE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "host": st.sampled_from("aAb"),
        "player_count": st.integers(0, 4) | st.just(2**63 - 1),
        "ended_ms": st.none() | st.just(1),
    }
)


_Row = tuple[dict[str, Any], dict[str, Any]]
"""What a session is reserved with, and what becomes of it."""


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[_Row], SessionFilter]:
    rows = draw(st.lists(st.tuples(_SESSIONS, _MORE), max_size=8))
    used = [label for new, _ in rows for label in new["labels"].items()]
    present = _LABELS
    if used:
        present = st.lists(st.sampled_from(used), min_size=1, max_size=2).map(dict)
    values: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("location", "application", "tag", "host"), _TEXTS),
        **dict.fromkeys(("more_players_than", "fewer_players_than"), _BOUNDS),
        "labels": present | _LABELS | st.just({"a": "\ud800"}),
    }
    names = draw(st.sets(st.sampled_from(sorted(values)), max_size=2))  # more would match nothing
    fields = {name: draw(values[name]) for name in sorted(names)}
    return rows, SessionFilter("alice", ended_too=draw(st.booleans()), **fields)


def _belongs(wanted: SessionFilter, new: dict[str, Any], more: dict[str, Any]) -> bool:
    low = wanted.more_players_than
    high = wanted.fewer_players_than
    return (
        new["account"] == wanted.account
        and (wanted.ended_too or more["ended_ms"] is None)
        and wanted.location in {None, new["location"]}
        and wanted.application in {None, new["application"]}
        and wanted.tag in {None, new["tag"]}
        and wanted.host in {None, more["host"]}
        and all(new["labels"].get(key) == value for key, value in wanted.labels.items())
        and (low is None or more["player_count"] > low)
        and (high is None or more["player_count"] < high)
    )


@settings(max_examples=300)
@given(_cases())
def test_filters_are_as_a_plain_model_has_them(
    db: Database, case: tuple[list[_Row], SessionFilter]
) -> None:
    rows, wanted = case
    db.execute("SAVEPOINT example")
    try:
        for number, (new, more) in enumerate(rows):
            reserve(db, new_session(str(number), **new))
            db.execute(
                "UPDATE session SET host=:host, player_count=:player_count, ended_ms=:ended_ms"
                " WHERE id=:id",
                more | {"id": str(number)},
            )
        found = [session_of(row[1:]).id for row in db.execute(*list_query(SQLITE, wanted))]
    finally:
        db.execute("ROLLBACK TO example")
        db.execute("RELEASE example")
    expected = [str(n) for n, (new, more) in enumerate(rows) if _belongs(wanted, new, more)]
    assert sorted(found) == sorted(expected)


async def test_the_labels_of_live_sessions_are_those_of_their_rows(store: Store) -> None:
    reports = Reports(store, read_ticket=lambda *_: TicketContents(0, 1, 1), keep_ended=86_400.0)
    add = "INSERT INTO agent(name, address) VALUES ('h', 'unix:/h')"
    await store.run(lambda db: db.execute(add))

    async def found(*names: str) -> None:
        kept, in_rows = await store.run(lambda db: (_kept_labels(db), _labels_of_rows(db)))
        assert kept == in_rows
        assert {session_id for *_, session_id in kept} == set(names)

    for session_id in ("a", "b", "c", "d"):
        await store.run(reserve, new_session(session_id, labels={"mode": "duel"}))
    await found("a", "b", "c", "d")

    # A claim has the labels of the pool; what takes its place has those of the caller.
    failed = Attempt("standby", "h", "")
    taken = Identity("alice", "x", "game", "v1", "local", {"pool": "1", "é": ""})
    standby = ClaimedStandby(failed, (), {}, "{}")
    await store.run(reserve, replace(new_session("x", labels=taken.labels), standby=standby))
    await found("a", "b", "c", "d", "x")
    await store.run(reserve, new_session("x", labels={"mode": "duel"}), failed=failed)
    await found("a", "b", "c", "d", "x")
    await store.run(
        sessions.free,
        "alice",
        "x",
        why="",
        now=1,
        attempt=None,
        is_audited=False,
    )
    await found("a", "b", "c", "d")

    # Hosts report a session that is unknown, another of its id, and its end.
    reported = replace(SESSION, internal_id="i1", identity=replace(taken, session_id="e"))
    await reports.write("h", [reported], 9)
    await found("a", "b", "c", "d", "e")
    other = replace(reported.identity, labels={"mode": "other"})
    reported = replace(reported, internal_id="i2", identity=other, create_time=0.001)
    await reports.write("h", [reported], 9)
    await found("a", "b", "c", "d", "e")
    ended = replace(reported, state=State.EXITED, end_reason=EndReason.EXITED, end_time=0.005)
    await reports.write("h", [ended], 9)
    await found("a", "b", "c", "d")

    # Others end unreported, are freed, or never begin.
    await store.run(sessions.begin_attempt, "alice", "b", Attempt("i3", "h", ""), now=9)
    started = Identity("alice", "b", "game", "v1", "local", {"mode": "duel"})
    await reports.write("h", [replace(SESSION, internal_id="i3", identity=started)], 9)
    await store.run(end_all_missing, "h", ["i3"], 9)
    await found("a", "c", "d")
    await store.run(
        sessions.free,
        "alice",
        "c",
        why="",
        now=9,
        attempt=None,
        is_audited=False,
    )
    await found("a", "d")
    await store.run(sessions.drop_unattempted, 9.0)
    await found()


def test_labels_that_only_a_host_can_make_up_fail_nothing(db: Database) -> None:
    db.execute("SAVEPOINT one")
    reserve(db, new_session("x", labels={"a\0b": "", "a\0c": "", "d": "e"}))
    assert ("alice", "d", "e", "x") in _kept_labels(db)
    db.execute("ROLLBACK TO one")


def _kept_labels(db: Database) -> set[tuple[str, ...]]:
    return {*db.execute("SELECT account, name, value, id FROM live_label NATURAL JOIN session")}


def _labels_of_rows(db: Database) -> set[tuple[str, ...]]:
    rows = db.execute("SELECT account, id, labels FROM session WHERE ended_ms IS NULL")
    return {
        (account, name, value, session)
        for account, session, labels in rows
        for name, value in json.loads(labels).items()
    }


# ---- counts

WRONG = (
    "SELECT id, player_count FROM session WHERE player_count <> (SELECT count(*) FROM player"
    " WHERE player.account = session.account AND player.session = session.id)"
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    account = "INSERT INTO account(name, created_ms) VALUES ('alice', 0)"
    async with opened(tmp_path / "test.db") as store:
        await store.run(lambda db: db.execute(account))
        yield store


@pytest.mark.parametrize("seed", range(5))
async def test_counts_are_right_whatever_happens_at_once(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"p{number}" for number in range(12)]
    ids = [f"s{number}" for number in range(6)]

    async def end(session_id: str) -> None:
        sql = "UPDATE session SET ended_ms=:ended WHERE id=:id"
        await store.run(run_sql, sql, {"ended": chance.randrange(9), "id": session_id})

    async def one() -> None:
        session_id = chance.choice(ids)
        chosen = chance.choices(names, k=chance.randint(1, 5))
        actions: list[Callable[[], Awaitable[object]]] = [
            lambda: end(session_id),
            lambda: store.run_in_portions(remove_ended, chance.randrange(9) / 1000),
            lambda: store.run(reserve, new_session(session_id, chance.randrange(9) / 1000)),
            lambda: store.run(players.leave_all, "alice", chosen, actor=None, now=0.0),
            lambda: store.run(players.leave, "alice", session_id, chosen, actor=None, now=0.0),
            lambda: store.run(players.join, "alice", session_id, chosen, actor=None, now=0.0),
        ]
        with suppress(ConflictError, NotFoundError):
            await chance.choices(actions, weights=(1, 1, 2, 1, 3, 4))[0]()

    for session_id in ids:
        await store.run(reserve, new_session(session_id))
    for _ in range(10):
        await asyncio.gather(*(one() for _ in range(40)))
        assert await store.run(lambda db: db.execute(WRONG).fetchall()) == []
    portions = find(store, SessionFilter("alice", ended_too=True))
    found = [session async for portion in portions for session in portion]
    for session in found:
        assert session.player_count == len(await store.read(players.joined, "alice", session.id))
    assert sum(session.player_count for session in found) > 0
    order = "SELECT id FROM session WHERE account='alice' ORDER BY number"
    rows = await store.run(lambda db: db.execute(order).fetchall())
    assert [session.id for session in found] == [session_id for (session_id,) in rows]


async def test_portion_of_long_labels_is_short(store: Store) -> None:
    labels = {"k": "x" * 60_000}
    for number in range(12):
        await store.run(reserve, new_session(str(number), labels=labels))
    portions = [portion async for portion in find(store, SessionFilter("alice"))]
    assert [len(portion) for portion in portions] == [5, 5, 2]
    assert [one.id for portion in portions for one in portion] == [str(n) for n in range(12)]


# ---- over HTTP


@pytest.fixture
async def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[System]:
    """Forty sessions of alice, every third of them ended, among as many of bob."""
    monkeypatch.setattr("controlplane.storage.tables.sessions.session_lists.PORTION", 7)
    monkeypatch.setattr("controlplane.sessions.sessions.AT_ONCE", 3)
    async with System(tmp_path) as system:
        store = system.control_plane.store
        for number in range(40):
            labels = {"fifth": str(number % 5)}
            for account in ("alice", "bob"):
                await store.run(reserve, new_session(f"s{number}", account=account, labels=labels))
        await system.rows("UPDATE session SET confirmed=1, state='running', agent='a0'")
        await system.rows("UPDATE session SET state='exited', ended_ms=1 WHERE rowid % 6 < 2")
        yield system


async def _ids(system: System, query: str) -> list[str]:
    answer = (await system.call("GET", f"/session?{query}")).expect(200)
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    return [session["id"] for session in answer.json["sessions"]]


async def test_a_list_in_portions_is_the_whole_list(many: System) -> None:
    every = [f"s{number}" for number in range(40)]
    ended = await many.rows("SELECT id FROM session WHERE account='alice' AND ended_ms NOTNULL")
    assert ended
    assert await _ids(many, "all=1") == every
    assert await _ids(many, "") == [name for name in every if (name,) not in ended]
    assert await _ids(many, "all=1&filter[fifth]=3") == every[3::5]
    assert await _ids(many, "all=1&filter[fifth]=9") == []
    assert await _ids(many, "all=1&host=none") == []


async def test_a_list_that_fails_midway_is_broken_off(
    many: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = many.control_plane.store.read
    asked = itertools.count()

    async def failing(function: Callable[..., Any], *args: Any) -> Any:
        is_list = function.__module__ == session_lists.__name__  # others read at any time
        if is_list and next(asked) == fails_at:
            raise StoreError("disk I/O error")
        return await real(function, *args)

    monkeypatch.setattr(many.control_plane.store, "read", failing)
    fails_at = 0
    assert_error(await many.call("GET", "/session?all=1"), 503)
    fails_at = 3
    asked = itertools.count()
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        await many.call("GET", "/session?all=1")
