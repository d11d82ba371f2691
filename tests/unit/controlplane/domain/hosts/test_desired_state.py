from dataclasses import replace

import pytest

from controlplane.domain.hosts.contract import Drain, PoolOnHost, StandbyOrder
from controlplane.domain.hosts.desired_state import DesiredState
from tiltyard.agent.bounds import MAX_REVISION
from tiltyard.contract import Identity, NetworkMode, Resources, SessionSpec

SPEC = SessionSpec(
    Identity("alice", "", "game", "v1", "local", {}),
    "image",
    NetworkMode.BRIDGE,
    Resources(),
    Resources(),
)


@pytest.fixture
def desired() -> DesiredState:
    return DesiredState(Drain())


def order(desired: DesiredState, size: int, *, now_ms: int = 100) -> StandbyOrder | None:
    desired.order_pool("pool", size, SPEC if size else None, "", now_ms=now_ms)
    return desired.pending_pool("pool")


def report(desired: DesiredState, drain: Drain | None = None, **pools: PoolOnHost) -> None:
    desired.note_report(drain or Drain(), pools)


def test_drain_is_pending_until_the_host_reports_its_revision(desired: DesiredState) -> None:
    desired.order_drain(Drain(1, draining=True))
    assert desired.drain_pending
    report(desired, Drain(0, draining=False))
    assert desired.drain_pending
    report(desired, Drain(1, draining=True))
    assert not desired.drain_pending


def test_drain_given_on_the_host_replaces_an_order_of_its_revision(desired: DesiredState) -> None:
    desired.order_drain(Drain(1, draining=True))
    report(desired, Drain(1, draining=False))
    assert desired.drain == Drain(1, draining=False)


def test_older_drain_of_the_host_replaces_no_order(desired: DesiredState) -> None:
    desired.order_drain(Drain(2, draining=True))
    report(desired, Drain(1, draining=False))
    assert desired.drain == Drain(2, draining=True)


def test_pool_is_pending_until_reported(desired: DesiredState) -> None:
    assert order(desired, 3) == StandbyOrder("pool", 100, 3, SPEC)
    assert desired.pool_size("pool") == 3
    report(desired, pool=PoolOnHost(100, 3))
    assert desired.pending_pool("pool") is None


def test_answered_pool_is_pending_again_in_the_next_incarnation(desired: DesiredState) -> None:
    sent = order(desired, 3)
    assert sent is not None
    desired.note_pool_answer(sent)
    assert desired.pending_pool("pool") is None
    desired.forget_answers()
    assert desired.pending_pool("pool") == sent


def test_answer_to_an_order_does_not_answer_the_next(desired: DesiredState) -> None:
    sent = order(desired, 3)
    assert sent is not None
    desired.note_pool_answer(sent)
    following = order(desired, 4)
    assert following is not None
    assert following.revision == sent.revision + 1


def test_same_order_of_a_pool_keeps_its_revision(desired: DesiredState) -> None:
    assert order(desired, 3) == order(desired, 3, now_ms=200)


def test_pool_follows_a_later_order_of_another_database(desired: DesiredState) -> None:
    order(desired, 3)
    report(desired, pool=PoolOnHost(150, 5))
    assert desired.pool_size("pool") == 5
    following = order(desired, 3, now_ms=120)
    assert following is not None
    assert following.revision == 151


def test_host_that_reports_the_last_revision_gets_no_further_order(desired: DesiredState) -> None:
    order(desired, 3)
    report(desired, pool=PoolOnHost(MAX_REVISION, 5))
    assert order(desired, 3) is None
    assert order(desired, 4) is None


def test_pool_that_no_one_keeps_is_not_removed(desired: DesiredState) -> None:
    assert order(desired, 0) is None
    assert desired.pools == set()


def test_removal_of_a_pool_is_forgotten_when_the_host_has_reported_it(
    desired: DesiredState,
) -> None:
    order(desired, 3)
    removal = order(desired, 0)
    assert removal is not None
    report(desired, pool=PoolOnHost(removal.revision, 0))
    assert desired.pools == {"pool"}
    report(desired)
    assert desired.pools == set()


def test_answer_to_a_finished_removal_is_forgotten(desired: DesiredState) -> None:
    """A later order may have its revision, if the clock went back."""
    order(desired, 3)
    removal = order(desired, 0)
    assert removal is not None
    desired.note_pool_answer(removal)
    report(desired, pool=PoolOnHost(removal.revision, 0))
    report(desired)
    following = order(desired, 3, now_ms=removal.revision)
    assert following is not None
    assert following.revision == removal.revision


def test_queries_change_nothing(desired: DesiredState) -> None:
    order(desired, 3)
    removal = order(desired, 0)
    assert removal is not None
    for _ in range(2):
        assert desired.pending_pool("pool") == removal
        assert desired.pool_size("pool") == 0


def test_no_shapes_are_pending_before_an_order(desired: DesiredState) -> None:
    assert desired.pending_shapes() is None


def test_shapes_are_pending_once_per_incarnation(desired: DesiredState) -> None:
    desired.order_shapes((SPEC,))
    assert desired.pending_shapes() == (SPEC,)
    desired.note_shapes_answer((SPEC,))
    assert desired.pending_shapes() is None
    desired.forget_answers()
    assert desired.pending_shapes() == (SPEC,)


def test_other_shapes_are_pending_after_an_answer(desired: DesiredState) -> None:
    desired.order_shapes((SPEC,))
    desired.note_shapes_answer((SPEC,))
    other = replace(SPEC, image="other")
    desired.order_shapes((other,))
    assert desired.pending_shapes() == (other,)


def test_order_of_no_shapes_is_sent_too(desired: DesiredState) -> None:
    desired.order_shapes(())
    assert desired.pending_shapes() == ()
