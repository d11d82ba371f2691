"""The answer of a claim has the changes of the standby alone only if these are all changes."""

from typing import Any

import pytest

from agent.domain.sessions.session import Claim, Session, Standby
from agent.rpc.wire import claimed_to_proto
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import State

STANDBY = Session(
    an_id(),
    a_spec(),
    create_time=1.0,
    state=State.RUNNING,
    injected_env={"ID": "standby", "PORT": "7777"},
    sequence=4,
    ready_time=2.0,
    standby=Standby("pool", 1),
)


def claimed(**changes: Any) -> Session:
    env = {"ID": "session", "PORT": "7777"}
    made: dict[str, Any] = {"claim": Claim("null"), "injected_env": env, "sequence": 5}
    return STANDBY.with_changes(**made | changes)


def test_changes_of_a_claim_are_its_sequence_and_the_variables_that_differ() -> None:
    changes = claimed_to_proto(STANDBY, claimed())
    assert changes is not None
    assert changes.sequence == 5
    assert dict(changes.injected_env) == {"ID": "session"}


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "192.0.2.9"},
        {"ready_time": None},
        {"detail": "it has ended"},
        {"injected_env": {"ID": "session"}},
        {"claim": None},
    ],
    ids=str,
)
def test_session_with_other_changes_is_reported_whole(changes: dict[str, Any]) -> None:
    assert claimed_to_proto(STANDBY, claimed(**changes)) is None


def test_session_that_has_ended_is_reported_whole() -> None:
    ended = claimed().to(State.EXITED, at=3.0)
    assert claimed_to_proto(STANDBY, ended) is None
