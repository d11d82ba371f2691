"""Every function that writes a thing with a topic notes the change.

Triggers note here what is really written, and must agree with what the functions note.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.callers import Caller
from controlplane.domain.access.quotas import Quota
from controlplane.domain.access.tokens import ACCOUNT_SCOPES, TokenRequest, mint
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.pool_fill import PoolFill
from controlplane.domain.applications.registries import Registry
from controlplane.domain.applications.tag_places import Available, Failed, Pulled, TagPlace
from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.conditions import Avoidance, HostConditions
from controlplane.domain.hosts.contract import Drain, HostSession, TicketContents
from controlplane.domain.placement.placement import NodePoolRules, Strategy
from controlplane.domain.sessions.attempts import Attempt
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts, tokens
from controlplane.storage.tables.applications import (
    applications,
    registries,
    tag_places,
    tags,
    warm_pools,
)
from controlplane.storage.tables.hosts import conditions, contact, enrolment, fleet
from controlplane.storage.tables.sessions import (
    players,
    reports,
    session_ends,
    session_rows,
    sessions,
)
from controlplane.storage.tables.webhooks import webhooks
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tests.unit.controlplane.storage.tables.seen_changes import Written
from tests.unit.controlplane.storage.tables.sessions.test_claims import STANDBY, cold, warm
from tests.unit.controlplane.storage.tables.webhooks import calls as webhook_calls
from tiltyard.contract import EndReason, NetworkMode, Resources, State

NOW = 1000.0
ACTOR = Actor("operator")
AS_NONE: dict[str, Any] = {"actor": None, "now": NOW}  # Without events of players
APPLICATION = Application(
    account="alice",
    name="game",
    registry="hub",
    repository="game",
    tag_keep=1,
    network_mode=NetworkMode.BRIDGE,
    node_pool="default",
    regions=("eu",),
    limits=Resources(),
    reservation=Resources(),
    ports=(),
)
TAG = Tag("v1", "sha256:1", "hub.example/game@sha256:1")
TAG_PLACE = TagPlace("alice", "game", "v1", TAG.digest, TAG.image, "eu", "default")
POOL = WarmPool("alice", "game", "eu", 1)
HUB = Registry("hub", "hub.example", ())
HOST = Agent("h", "unix:/h", "eu", "default")
ROOT = mint()
CHILD = mint()
ATTEMPT = Attempt("i", "h", "192.0.2.1")
LIVE = replace(SESSION, internal_id="i")
REPORTER: Any = SimpleNamespace(agent="h", read_ticket=lambda *_: None, now=NOW, keep_ended=9.0)
ADOPTING: Any = SimpleNamespace(
    **vars(REPORTER) | {"read_ticket": lambda *_: TicketContents(90_000, 1, 1)}
)
UNKNOWN = replace(SESSION, internal_id="u", identity=cold("unknown").identity)


def begin(db: Database) -> None:
    """An account that has one of everything."""
    for node_pool in ("default", "unused"):
        fleet.set_node_pool(db, node_pool, NodePoolRules(Strategy.PACKED), actor=ACTOR, now=NOW)
    for region in ("eu", "unused"):
        fleet.create_region(db, region, ACTOR, NOW)
    for registry in (HUB, Registry("unused", "unused.example", ())):
        registries.put(db, registry, ACTOR, NOW)
    where = {"region": "eu", "node_pool": "default"}
    db.execute("UPDATE agent SET region=:region, node_pool=:node_pool, id=name, draining=1", where)
    tokens.insert_token(db, "alice", ROOT, ACCOUNT_SCOPES, now=NOW, name="root")
    tokens.insert_token(
        db, "alice", CHILD, ACCOUNT_SCOPES, now=NOW, name="child", parent=ROOT.token_id
    )
    applications.create(db, APPLICATION, actor=ACTOR, now=NOW)
    tags.enable_tag(db, ("alice", "game"), TAG, actor=ACTOR, now=NOW)
    warm_pools.put(db, POOL, ACTOR, NOW)
    webhooks.create(db, replace(webhook_calls.WEBHOOK, id="first"), b"sealed", actor=ACTOR)


def attempted(db: Database) -> None:
    sessions.reserve(db, cold("one"), first=ATTEMPT)


def running(db: Database) -> None:
    attempted(db)
    reports.write_all(db, REPORTER, [LIVE])


def played(db: Database) -> None:
    running(db)
    players.join(db, "alice", "one", ["ada", "bob"], actor=None, now=NOW)


def ended(db: Database) -> None:
    running(db)
    session_ends.end_stopped(db, "h", "i", NOW)


def claimed(db: Database) -> None:
    sessions.reserve(db, warm("one"))


def ended_and_removed(db: Database) -> None:
    ended(db)
    removed(db)


def waiting(db: Database) -> None:
    sessions.reserve(db, cold("x"))


def removed(db: Database) -> None:
    accounts.remove(db, "alice", ACTOR, NOW)


def nothing(_: Database) -> None: ...


def unresponsive(db: Database) -> None:
    contact.note_downtime(db, "h", 60.0, NOW)


def note_fill(db: Database) -> None:
    [(pool_id,)] = db.execute("SELECT id FROM warm_pool").fetchall()
    warm_pools.note_fills(db, [PoolFill(pool_id, True, 1, 1)], NOW)


def note_tag(db: Database) -> None:
    news: list[Any] = [
        Pulled(TAG_PLACE, "h"),
        Available(TAG_PLACE),
        Pulled(TAG_PLACE, "h", is_present=False),
        Failed(TAG_PLACE, "h", ""),
    ]
    tag_places.note_news(db, news, NOW)


def lost(db: Database) -> None:
    contact.lose(db, "g", (), NOW)


def failed(session: HostSession) -> HostSession:
    return replace(session, failure_time=NOW)


def reported_end(session: HostSession) -> HostSession:
    return replace(session, state=State.EXITED, end_reason=EndReason.EXITED, end_time=NOW)


Do = Callable[[Database], object]
RULES = NodePoolRules(Strategy.SPREAD)
KEY = ("alice", "game")
AT: Any = {"actor": ACTOR, "now": NOW}
PLACE = ("alice", "game", "eu")
CALLER = Caller("alice", ROOT.token_id, frozenset())
WANTED = TokenRequest("new", frozenset(), None)
FAILED = STANDBY._replace(is_unanswered=True)
DRAIN = Drain(1, True, None)
TROUBLED = HostConditions(True, True, Avoidance(NOW + 5, "engine_error", "x"))
NEW_TAG = Tag("v2", "sha256:2", "hub.example/game@sha256:2")


def edited(application: Application) -> Application:
    return replace(application, pids=9)


def declare(db: Database) -> None:
    hosts = [replace(HOST, address="unix:/new"), replace(HOST, name="new")]
    hub = replace(HUB, aliases=("b",))
    fleet.declare(db, regions=["new"], node_pools=["new"], registries=[hub], agents=hosts)


def end_attempt(db: Database) -> None:
    sessions.end_attempt(db, "alice", "one", ATTEMPT, now=NOW)


def end_unanswered(db: Database) -> None:
    attempt = ATTEMPT._replace(is_unanswered=True)
    sessions.end_attempt(db, "alice", "one", attempt, now=NOW)


def make_token(db: Database) -> None:
    tokens.make(db, Actor(ROOT.token_id), mint(), wanted=WANTED, now=NOW)


def free(db: Database) -> None:
    sessions.free(
        db,
        "alice",
        "one",
        why="x",
        now=NOW,
        attempt=ATTEMPT,
        is_audited=True,
    )


CASES: list[tuple[str, Do, Do]] = [
    ("create account", nothing, lambda db: accounts.create_account(db, "new", mint(), **AT)),
    ("operator", nothing, lambda db: accounts.create_operator_token(db, mint(), 1, another=True)),
    ("quota", nothing, lambda db: accounts.replace_quota(db, "alice", Quota(1), **AT)),
    ("remove account", nothing, removed),
    ("remove its sessions", ended_and_removed, lambda db: accounts.remove_portion(db, "alice")),
    ("remove the rest", removed, lambda db: [accounts.remove_left(db, NOW) for _ in range(9)]),
    ("use of token", nothing, lambda db: accounts.note_use(db, CALLER, NOW)),
    (
        "new token",
        nothing,
        make_token,
    ),
    ("revoke", nothing, lambda db: tokens.revoke(db, ROOT.token_id, ACTOR, NOW)),
    ("old tokens", removed, lambda db: tokens.remove_ended(db, NOW + 1)),
    ("edit", nothing, lambda db: applications.edit(db, KEY, edited, **AT)),
    ("tag", nothing, lambda db: tags.enable_tag(db, KEY, NEW_TAG, **AT)),
    ("pool", nothing, lambda db: warm_pools.put(db, replace(POOL, size=2), ACTOR, NOW)),
    ("remove pool", nothing, lambda db: warm_pools.remove(db, PLACE, ACTOR, NOW)),
    ("region", nothing, lambda db: fleet.create_region(db, "new", ACTOR, NOW)),
    ("remove region", nothing, lambda db: fleet.remove(db, "region", "unused", **AT)),
    ("node pool", nothing, lambda db: fleet.set_node_pool(db, "default", RULES, **AT)),
    ("remove node pool", nothing, lambda db: fleet.remove(db, "node_pool", "unused", **AT)),
    ("registry", nothing, lambda db: registries.put(db, replace(HUB, aliases=("a",)), ACTOR, 1)),
    ("remove registry", nothing, lambda db: fleet.remove(db, "registry", "unused", **AT)),
    ("settings", nothing, declare),
    ("remove agent", lost, lambda db: fleet.remove_agent(db, "g", ACTOR, NOW)),
    ("drain", nothing, lambda db: fleet.order_drain(db, "h", DRAIN, **AT)),
    ("report of host", unresponsive, lambda db: contact.note_report(db, "h", NOW, HOST.written)),
    ("reported drain", nothing, lambda db: fleet.learn_drain(db, "h", DRAIN, NOW)),
    ("draining sessions", running, lambda db: conditions.note_draining(db, "h", NOW)),
    ("conditions", nothing, lambda db: conditions.note_conditions(db, {"h": TROUBLED}, NOW)),
    ("fill of a pool", nothing, note_fill),
    ("places of a tag", nothing, note_tag),
    ("downtime", nothing, lambda db: contact.note_downtime(db, "h", 5.0, NOW)),
    ("lost host", running, lambda db: contact.lose(db, "h", (), NOW)),
    ("lost start", attempted, lambda db: contact.lose(db, "h", (), NOW)),
    ("renewed", nothing, lambda db: enrolment.renewed(db, fleet.get_agent(db, "h"), "1", NOW)),
    ("one authority", nothing, lambda db: enrolment.trusts_one_authority(db, "h")),
    ("revoked host", running, lambda db: enrolment.revoke(db, "h", ACTOR, NOW)),
    ("reserve", nothing, lambda db: sessions.reserve(db, cold("one"))),
    ("first attempt", nothing, attempted),
    ("claim", nothing, claimed),
    ("claim again", claimed, lambda db: sessions.reserve(db, cold("one"), failed=FAILED)),
    ("other claim", claimed, lambda db: sessions.reserve(db, cold("two"), failed=FAILED)),
    ("end attempt", attempted, end_attempt),
    ("end unanswered attempt", attempted, end_unanswered),
    ("free", attempted, free),
    ("stop", running, lambda db: sessions.request_stop(db, "alice", "one", **AT)),
    ("waiting", waiting, lambda db: sessions.drop_unattempted(db, NOW)),
    ("report", attempted, lambda db: reports.write_all(db, REPORTER, [LIVE])),
    ("adopt", nothing, lambda db: reports.write_all(db, ADOPTING, [UNKNOWN])),
    ("failed run", played, lambda db: reports.write_all(db, REPORTER, [failed(LIVE)])),
    ("end", played, lambda db: reports.write_all(db, REPORTER, [reported_end(LIVE)])),
    ("stopped", played, lambda db: session_ends.end_stopped(db, "h", "i", NOW)),
    ("missing", played, lambda db: session_ends.end_all_missing(db, "h", ["i"], NOW)),
    ("missing start", attempted, lambda db: session_ends.end_all_missing(db, "h", ["i"], NOW)),
    ("old sessions", ended, lambda db: session_rows.remove_ended(db, NOW + 1)),
    ("surplus", ended, lambda db: session_rows.remove_numbers(db, [1])),
    ("join", running, lambda db: players.join(db, "alice", "one", ["ada"], **AS_NONE)),
    ("leave", played, lambda db: players.leave(db, "alice", "one", ["ada"], **AS_NONE)),
    ("leave all", played, lambda db: players.leave_all(db, "alice", ["bob"], **AS_NONE)),
    *webhook_calls.CHANGES,
]


@pytest.mark.parametrize(("before", "do"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
async def test_changes_are_published(store: Store, before: Do, do: Do) -> None:
    written = Written()
    published: set[Change] = set()
    await store.run(begin)
    await store.run(before)
    await store.run(written.watch)
    store.changes.subscribe(Topic, published.add)
    await store.run(do)
    assert written.changes
    assert published == written.changes
