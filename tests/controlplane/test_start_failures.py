"""Starts that fail for a reason other than room, and hosts that are avoided for them."""

import pytest

from controlplane.domain.errors import AgentRefusedError, StoreError
from controlplane.domain.placement.start_failures import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST,
    StartFailures,
)
from controlplane.sessions.attempt import Attempts
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import System, assert_error
from tiltyard.contract import ErrorReason

CAUSE = "cannot start: bind source path does not exist"
BROKEN = refusing("ENGINE_ERROR", CAUSE)
GAME = ("alice", "game")
OTHER = ("bob", "game")
ERROR = AgentRefusedError(ErrorReason.ENGINE_ERROR, CAUSE)


pytestmark = pytest.mark.system(agents=2, in_order=True, application={})


@pytest.fixture
async def system(system: System) -> System:
    """The first of two hosts fails every start, and is preferred unless avoided."""
    system.agent.before_start = BROKEN
    return system


@pytest.mark.system(kind=Scraped, agents=2, application={})
async def test_a_start_that_every_host_fails_names_the_reason(system: Scraped) -> None:
    for agent in system.agents:
        agent.before_start = BROKEN
    answer = assert_error(await system.start(), 420, details=CAUSE)
    assert "room" not in answer.json["details"]
    assert int(answer.headers["Retry-After"]) > 0
    scrape = await system.scrape()
    assert scrape.sum("start_refusals_total", reason="hosts_failed") == 1
    assert scrape.sum("start_failures_total", reason="engine_error") == 2
    query = "/operator/placement?account=alice&image=game&location=local"
    for host in (await system.read(query))["hosts"]:
        assert host["rank"] == 1
        assert host["failure"]["cause"] == CAUSE
    for listed in (await system.read("/operator/agent"))["agents"]:
        (failure,) = listed["startFailures"]
        assert failure["account"] == "alice"
        assert failure["image"] == "game"
        assert failure["reason"] == "engine_error"
        assert failure["cause"] == CAUSE
        assert failure["failures"] == 1
        assert listed["startFailureCount"] == 1
        assert failure["avoidedUntil"] == failure["failed"] + FIRST_PAUSE * 1000


@pytest.mark.parametrize(
    ("reason", "details"),
    [
        ("NOT_ALLOWED", "this host's policy forbids it"),
        ("NO_CAPACITY", "no host has capacity"),
    ],
)
async def test_a_refusal_is_named_and_avoids_no_host(
    system: System, reason: str, details: str
) -> None:
    for agent in system.agents:
        agent.before_start = refusing(reason, details)
    assert_error(await system.start(), 420, details=details)
    assert (await system.read("/operator/agent/a0"))["startFailures"] == []


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Avoid a host for longer than a test takes."""
    monkeypatch.setattr("controlplane.domain.placement.start_failures.FIRST_PAUSE", 600.0)


@pytest.mark.usefixtures("long_pause")
async def test_a_host_that_fails_an_application_is_avoided_by_that_one_alone(
    system: System,
) -> None:
    broken, whole = system.agents
    await system.make_application(account="bob")
    for _ in range(3):
        assert (await system.start()).status == 201
    assert len(broken.started) == 1
    assert len(whole.started) == 3
    assert (await system.read("/operator/agent/a0"))["state"] == "ready"
    broken.before_start = None
    assert (await system.start(account="bob")).status == 201
    assert len(broken.live) == 1


@pytest.mark.usefixtures("long_pause")
async def test_a_host_that_fails_several_accounts_is_avoided_by_all(system: System) -> None:
    broken, _ = system.agents
    await system.make_application(account="bob")
    for account in ("alice", "bob"):
        assert (await system.start(account=account)).status == 201
    assert len(broken.started) == 2
    assert (await system.read("/operator/agent/a0"))["state"] == "failing"
    await system.make_application(name="third")
    assert (await system.start(image="third")).status == 201
    assert len(broken.started) == 2


async def test_a_host_that_is_avoided_is_used_where_no_other_has_room(system: System) -> None:
    broken, whole = system.agents
    assert (await system.start()).status == 201
    broken.before_start = None
    whole.change_host(free_sessions=1)
    await system.has_reported(whole.name, free_sessions=0)
    assert (await system.start()).status == 201
    assert len(broken.live) == 1
    assert (await system.read("/operator/agent/a0"))["startFailures"] == []


def test_the_back_off_doubles_to_a_bound_and_ends_with_a_success() -> None:
    failures = StartFailures()
    now = 0.0
    pauses = []
    for _ in range(9):
        failures.note(GAME, ERROR, now, 0)
        found = failures.note(GAME, ERROR, now, 0)
        pauses.append(found.until - now)
        assert failures.avoided(GAME, found.until - 0.01) is found
        assert failures.avoided(GAME, found.until) is None
        now = found.until
    assert pauses == [min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(9)]
    assert failures.all_failures(now)[0].count == 18
    failures.note_success(GAME)
    assert failures.all_failures(now) == []
    assert failures.note(GAME, ERROR, now, 0).pause == FIRST_PAUSE


def test_failure_long_after_the_last_one_counts_as_the_first() -> None:
    failures = StartFailures()
    failures.note(GAME, ERROR, 0.0, 0)
    late = FIRST_PAUSE + LONGEST_PAUSE + 1
    assert failures.all_failures(late) == []
    assert failures.note(GAME, ERROR, late, 0).pause == FIRST_PAUSE


def test_failures_of_one_account_avoid_no_host_for_others() -> None:
    failures = StartFailures()
    for number in range(2 * MOST):
        failures.note(("alice", f"game-{number}"), ERROR, 0.0, 0)
    assert failures.avoided(OTHER, 1.0) is None
    assert not failures.is_failing(1.0)
    assert len(failures.all_failures(1.0)) == MOST
    failures.note(("carol", "game"), ERROR, 1.0, 0)
    assert failures.is_failing(2.0)
    assert failures.avoided(OTHER, 2.0) is not None


def test_a_success_of_one_application_ends_the_avoidance_by_all_but_those_that_failed() -> None:
    failures = StartFailures()
    failures.note(GAME, ERROR, 1.0, 0)
    failures.note(("carol", "game"), ERROR, 1.0, 0)
    assert failures.avoided(OTHER, 2.0) is not None
    failures.note_success(OTHER)
    assert failures.avoided(OTHER, 2.0) is None
    assert failures.avoided(("carol", "game"), 2.0) is not None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("no such file: /var/lib/secret"), "internal error"),
        (StoreError("cannot write /var/lib/secret"), "the database failed"),
    ],
)
@pytest.mark.system(agents=1, application={})
async def test_event_of_a_failed_start_has_no_text_for_operators(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Attempts, "call_start", fail)
    answer = await system.start(id="s")
    assert answer.status >= 500
    [event] = (await system.read("/event?session=s&kind=session.start_failed"))["events"]
    assert event["data"]["why"] == why
