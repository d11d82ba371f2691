"""Calls of the functions of the tables until every statement was executed, and its plan kept."""

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import controlplane.storage.tables
from controlplane.domain.access.audit import AuditFilter
from controlplane.domain.access.enrolment import EnrolmentRequest, Issued, Place
from controlplane.domain.access.quotas import Quota
from controlplane.domain.access.tokens import PresentedToken, mint
from controlplane.domain.errors import StoppedDuringStartError
from controlplane.domain.events.event import Retention
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.sessions.sessions import PageFilter, SessionFilter
from controlplane.storage.engine.database import NO_VALUES, Database, Values
from controlplane.storage.engine.sqlite import SqliteDatabase
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts, tokens
from controlplane.storage.tables.accounting import audit, event_reading, event_retention, restored
from controlplane.storage.tables.applications import (
    applications,
    registries,
    standby_orders,
    tag_places,
    warm_pools,
)
from controlplane.storage.tables.hosts import enrolment, exposure, fleet, host_orders
from controlplane.storage.tables.sessions import (
    claims,
    lost_times,
    players,
    session_lists,
    session_queries,
    sessions,
    stop_orders,
    written_reports,
)
from tests.support.controlplane.transactions import new_database
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold
from tests.unit.controlplane.storage.tables.test_noted_changes import (
    ACTOR,
    AT,
    ATTEMPT,
    CASES,
    KEY,
    NOW,
    POOL,
    Do,
    attempted,
    begin,
    ended,
    nothing,
    played,
    running,
)
from tests.unit.controlplane.storage.tables.webhooks import calls as webhook_calls

TABLES = Path(controlplane.storage.tables.__file__).parent


class Statement(NamedTuple):
    """A statement, the function and the place that executes it, and the steps of its plan."""

    function: str
    place: tuple[str, int]
    sql: str
    plan: tuple[str, ...]


class Recorder(SqliteDatabase):
    """A database that keeps the statements of the tables, with their plans."""

    def __init__(self) -> None:
        super().__init__(new_database().connection)
        self.execute("PRAGMA foreign_keys=ON")
        self.statements: set[Statement] = set()

    def execute(self, sql: str, values: Values = NO_VALUES, /) -> Any:
        self._record(sql, values)
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Values], /) -> int:
        every = [*rows]
        self._record(sql, every[0])
        return super().executemany(sql, every)

    def _record(self, sql: str, values: Values) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and Path(frame.f_code.co_filename).parent.name == "engine":
            frame = frame.f_back
        assert frame is not None
        path = Path(frame.f_code.co_filename)
        if TABLES not in path.parents:
            return
        steps = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        function = f"{path.stem}.{frame.f_code.co_name}"
        plan = tuple(step[3] for step in steps)
        self.statements.add(Statement(function, (path.stem, frame.f_lineno), sql, plan))


class Reading:
    """A store that only reads."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def read(self, at: Callable[..., Any], *args: Any) -> Any:
        return at(self.db, *args)


TOKEN = mint()
PRESENTED = PresentedToken(TOKEN.token_id, TOKEN.secret_hash)
ISSUED = Issued(b"", "1", 9.0, "a")


def limited(db: Database) -> None:
    accounts.replace_quota(db, "alice", Quota(9, 9, 9), **AT)


def enrol(db: Database) -> None:
    enrolment.make_token(db, TOKEN, Place("eu", "default"), **AT, expire=NOW + 1)
    request = EnrolmentRequest("", "", "new", "unix:/new")
    enrolment.enrol(db, PRESENTED, request, agent_id="1", issued=ISSUED, address="", now=NOW)


def to_stop(db: Database) -> None:
    attempted(db)
    sessions.request_stop(db, "alice", "one", **AT)


def labelled(db: Database) -> None:
    new = cold("labelled")
    sessions.reserve(db, replace(new, identity=replace(new.identity, labels={"a": "b", "c": "d"})))


def attempt_again(db: Database) -> None:
    with suppress(StoppedDuringStartError):
        sessions.begin_attempt(db, "alice", "one", ATTEMPT, now=NOW)


def recorded(db: Database) -> None:
    played(db)
    asks = partial(replace, player_events=True)
    applications.edit(db, KEY, asks, **AT)


def with_players_in_the_log(db: Database) -> None:
    recorded(db)
    players.join(db, "alice", "one", ["cy"], **AT)
    cast("SqliteDatabase", db).write_events()


EVENTS_OF_TOKENS = ("alice", Retention.ACTS)

OTHERS: list[tuple[Do, Do]] = [
    (nothing, accounts.names),
    (nothing, accounts.find),
    (nothing, lambda db: accounts.find_token(db, "x")),
    (nothing, lambda db: tokens.find(db, "alice", NOW, ended_too=True)),
    (nothing, lambda db: tokens.find(db, None, NOW, ended_too=False)),
    (nothing, lambda db: tokens.is_good(db, "x", NOW)),
    (nothing, lambda db: tokens.good_of(db, ["x"], NOW)),
    (nothing, lambda db: event_retention.remove_old(db, 0, before=NOW + 1, now=NOW)),
    (with_players_in_the_log, lambda db: event_retention.remove_of_players(db, NOW + 1)),
    (nothing, lambda db: event_retention.has_surplus(db, "alice", 1)),
    (nothing, lambda db: event_retention.surplus_of(db, *EVENTS_OF_TOKENS, 1)),
    (nothing, lambda db: event_retention.remove_until(db, *EVENTS_OF_TOKENS, after=0, last=99)),
    (limited, lambda db: sessions.reserve(db, cold("one"))),
    (limited, lambda db: warm_pools.put(db, replace(POOL, size=2, labels={}), ACTOR, NOW)),
    (nothing, lambda db: restored.mark_restored(db, "2026-01-01T00:00:00Z", NOW)),
    (nothing, lambda db: applications.with_registry(db, *KEY)),
    (nothing, lambda db: applications.tagged(db, KEY)),
    (nothing, applications.pooled_applications),
    (nothing, lambda db: registries.at(db, "hub.example")),
    (nothing, registries.counted),
    (nothing, lambda db: host_orders.orders_of(db, "eu", "default", ["x"])),
    (nothing, lambda db: tag_places.tags_in_places(db, ["x"], [KEY], ["h"])),
    (nothing, lambda db: tag_places.written_on_hosts(db, ["x"], ["h"])),
    (nothing, lambda db: tag_places.written_in_regions(db, ["x"])),
    (nothing, enrol),
    (nothing, lambda db: enrolment.rotated(db, "a", ACTOR, NOW, compromised=True)),
    (nothing, lambda db: exposure.find(db, "h")),
    (nothing, lambda db: fleet.agents(db, names=["h"])),
    (nothing, fleet.agents),
    (nothing, fleet.counted_regions),
    (nothing, fleet.node_pools),
    (nothing, lambda db: claims.held_claim(db, "h", "i", NOW)),
    (nothing, lost_times.begin),
    (nothing, lambda db: lost_times.end(db, NOW, 1.0)),
    (recorded, lambda db: players.join(db, "alice", "one", ["cy"], **AT)),
    (recorded, lambda db: players.leave(db, "alice", "one", ["ada"], **AT)),
    (recorded, lambda db: players.leave_all(db, "alice", ["ada"], **AT)),
    (nothing, lambda db: players.most_players(db, "alice", "one")),
    (nothing, lambda db: players.describe(db, "alice", "one")),
    (nothing, lambda db: session_queries.has_row(db, "i")),
    (ended, lambda db: session_queries.surplus_of(db, "alice", 0, 0)),
    (nothing, labelled),
    (to_stop, attempt_again),
    (nothing, lambda db: stop_orders.pending_stops(db, "h")),
    (nothing, stop_orders.all_pending_stops),
    (nothing, lambda db: stop_orders.remove_confirmed(db, NOW)),
    (nothing, lambda db: stop_orders.surplus_before(db, 1)),
    *webhook_calls.OTHERS,
    (running, lambda db: written_reports.unchanged_since_written(db, "h", ["i"])),
]

_PAGES: tuple[dict[str, str], ...] = ({}, {"account": "a"}, {"agent": "a"}, {"location": "a"})
PAGES = [
    PageFilter(9, before, ended_too=ended_too, **fields)
    for fields in _PAGES
    for before in (None, 5)
    for ended_too in (False, True)
]

_EVENTS: tuple[dict[str, str], ...] = (
    {},
    {"account": "a"},
    {"kind": "a"},
    {"kind": "a.b"},
    {"actor": "a"},
    {"object": "a"},
)
EVENTS = [AuditFilter(9, before, **fields) for fields in _EVENTS for before in (None, 5)]

READ_EVENTS = [
    EventFilter("alice"),
    EventFilter("alice", session="one"),
    EventFilter(None, is_operator=True),
    EventFilter(None, is_operator=True, kinds=("session.*",)),
]

_LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"application": "game"},
    {"tag": "v1"},
    {"labels": {"a": "b", "c": "d"}},
)
LISTS = [
    SessionFilter("alice", ended_too=ended_too, **fields)
    for fields in _LISTS
    for ended_too in (False, True)
]


def record(db: Recorder) -> None:
    """Call the functions of the tables."""
    db.execute("INSERT INTO account(name, created_ms) VALUES ('alice', 1000)")
    db.execute("INSERT INTO agent(name, address) VALUES ('h', 'unix:/h'), ('g', 'unix:/g')")
    begin(db)
    db.write_events()
    # So far after these events that their readers look further than NEAR.
    db.execute(f"UPDATE event_counter SET number = number + {event_reading.NEAR}")
    for before, do in [*(case[1:] for case in CASES), *OTHERS]:
        db.execute("SAVEPOINT one")
        before(db)
        do(db)
        db.execute("ROLLBACK TO one")
    for page in PAGES:
        session_lists.find_page(db, page)
    for events in EVENTS:
        audit.find(db, events)
    for wanted in READ_EVENTS:
        event_reading.read_after(db, wanted, event_reading.first_position(db, wanted), 9)
    event_reading.read_newer(db, 0, 9)
    event_reading.event_at(db, Position(1, 1))
    with suppress(EventsGoneError):
        event_reading.read_after(db, READ_EVENTS[0], Position(0, 0), 9)
    labelled(db)


async def record_lists(db: Recorder) -> None:
    """Read what is read in portions."""
    reading = cast("Store", Reading(db))
    for wanted in LISTS:
        assert [portion async for portion in session_lists.find(reading, wanted)]
    assert [portion async for portion in applications.all_of(reading, "alice")]
    assert [portion async for portion in warm_pools.all_of(reading, "alice")]
    assert await standby_orders.wanted(reading, {})
