"""What a released hold does: by the outcome of its call, and what the host has reported since."""

import uuid
from dataclasses import replace
from typing import Any, cast

import pytest

from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError
from controlplane.domain.hosts.contract import Claim, HostSession
from controlplane.domain.sessions.attempts import Attempt
from controlplane.fleet.host.standbys import Standbys
from controlplane.sessions.capacity import HeldCapacity
from controlplane.sessions.claim import HeldStandby
from controlplane.sessions.hold import Confirmed, Hold, NothingStarted, Outcome, Unknown
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import ErrorReason, Identity, Resources

INTERNAL_ID = str(uuid.UUID(int=1))
STANDBY = replace(
    SESSION, internal_id=INTERNAL_ID, warm_pool="pool", warm_pool_revision=1, ready_time=1.0
)
ATTEMPT = Attempt(INTERNAL_ID, "h", "192.0.2.1")
CONFIRMED = Confirmed(SESSION, is_to_stop=False)
UNKNOWN = Unknown(AgentUnavailableError("timeout"))


def refused(reason: ErrorReason) -> NothingStarted:
    return NothingStarted(AgentRefusedError(reason, "no"))


def called(hold: Hold, outcome: Outcome | None) -> None:
    hold.is_called = True
    hold.outcome = outcome


class Given:
    """A fleet of one host, which has a standby."""

    def __init__(self) -> None:
        self.standbys = Standbys()
        self.seen: HostSession | None = STANDBY
        self.claims_ended = 0
        self.given_back: list[str] = []
        self.host_of: Any = self
        self.name = "h"
        self.state = self
        self.standbys.note("h", STANDBY)

    def host(self, _: str) -> Any:
        return self.host_of

    def session(self, _: str) -> HostSession | None:
        return self.seen

    def end_claim(self, _: str) -> None:
        self.claims_ended += 1

    def give_back(self, _: object, internal_id: str) -> None:
        self.given_back.append(internal_id)

    def held(self) -> HeldStandby:
        taken = self.standbys.take("pool", lambda _: True)
        assert taken is not None
        fleet: Any = self
        return HeldStandby(fleet, ATTEMPT, taken[1], cast("Any", None), fleet)

    @property
    def is_offered(self) -> bool:
        return bool(self.standbys.ready_agents("pool"))


@pytest.mark.parametrize(
    ("outcome", "is_offered"),
    [
        (UNKNOWN, False),
        (CONFIRMED, False),
        (None, False),
        (refused(ErrorReason.STANDBY_NOT_CLAIMABLE), False),
        (refused(ErrorReason.DRAINING), True),
    ],
    ids=["unknown", "confirmed", "no outcome", "refused alone", "any claim refused"],
)
def test_claimed_standby_is_offered_if_it_is_still_one(
    outcome: Outcome | None, *, is_offered: bool
) -> None:
    given = Given()
    held = given.held()
    called(held, outcome)
    held.release()
    assert given.is_offered is is_offered
    assert given.claims_ended == 1


def test_standby_that_was_not_claimed_is_offered_again() -> None:
    given = Given()
    given.held().release()
    assert given.is_offered


def test_standby_that_is_taken_is_not_offered() -> None:
    given = Given()
    given.held().end()
    assert not given.is_offered
    assert given.claims_ended == 1


def test_refused_standby_is_offered_if_its_host_has_reported_it_since() -> None:
    given = Given()
    held = given.held()
    called(held, refused(ErrorReason.STANDBY_NOT_CLAIMABLE))
    given.seen = replace(STANDBY, sequence=11)
    held.release()
    assert given.is_offered


def test_standby_of_a_host_that_was_replaced_is_not_offered() -> None:
    given = Given()
    held = given.held()
    given.host_of = None
    held.release()
    assert not given.is_offered


def test_row_gets_the_variables_of_the_session_for_those_of_the_standby() -> None:
    given = Given()
    own_id = STANDBY.identity.session_id
    held = given.held()
    held.standby = replace(STANDBY, injected_env={"SESSION_ID": own_id, "IP": "192.0.2.1"})
    claim = Claim(
        INTERNAL_ID, Identity("alice", "x", "game", "v1", "local", {}), None, "{}", Resources()
    )
    claimed = held.claimed_by(claim)
    assert claimed.injected_env == {"SESSION_ID": "x", "IP": "192.0.2.1"}
    assert claimed.attempt == ATTEMPT


@pytest.mark.parametrize(
    ("outcome", "given_back"),
    [
        (None, [INTERNAL_ID]),
        (UNKNOWN, [INTERNAL_ID]),
        (refused(ErrorReason.NO_CAPACITY), [INTERNAL_ID]),
        (CONFIRMED, []),
    ],
    ids=["no outcome", "unknown", "refused", "confirmed"],
)
def test_capacity_is_given_back_unless_its_session_runs(
    outcome: Outcome | None, given_back: list[str]
) -> None:
    given = Given()
    fleet: Any = given
    held = HeldCapacity(fleet, ATTEMPT, fleet)
    called(held, outcome)
    held.release()
    assert given.given_back == given_back


@pytest.mark.parametrize(
    ("outcome", "is_unanswered"),
    [
        (None, True),
        (UNKNOWN, True),
        (refused(ErrorReason.NO_CAPACITY), False),
    ],
    ids=["no outcome", "unknown", "refused"],
)
def test_called_attempt_is_unanswered_unless_refused(
    outcome: Outcome | None, *, is_unanswered: bool
) -> None:
    fleet: Any = Given()
    held = HeldCapacity(fleet, ATTEMPT, fleet)
    assert not held.failed.is_unanswered
    called(held, outcome)
    assert held.failed.is_unanswered is is_unanswered
