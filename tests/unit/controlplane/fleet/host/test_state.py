from dataclasses import replace
from typing import cast
from unittest import mock

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentExcessError
from controlplane.domain.hosts import contract
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Answer, Port, SessionsReported, WatchMessage
from controlplane.domain.placement.placement import HostView, Wanted
from controlplane.fleet.host import state
from controlplane.fleet.host.state import HostState
from tests.unit.controlplane.domain.placement.test_placement import HOST, IMAGE
from tiltyard.contract import Identity, PortRequest, Protocol, Resources, State

WANTED = Wanted(IMAGE, Resources(2, 3), (PortRequest(1, Protocol.UDP, pinned=20007),))
OF_ALICE = replace(WANTED, owner=("alice", "game"))
SESSION = contract.HostSession(
    internal_id="i",
    identity=Identity("a", "s", "game", "v1", "local", {}),
    image=IMAGE,
    state=State.RUNNING,
    ports=(Port(1, Protocol.UDP, 20007),),
    reservation=Resources(2, 3),
    injected_env={},
    create_time=0,
    end_time=None,
    exit_code=None,
    end_reason=None,
    detail="",
    sequence=10,
    host="192.0.2.1",
)


@pytest.fixture
def link() -> HostState:
    made = HostState(Agent("h", "unix:/h", "local", "default"), cast("AgentClient", None))
    made.apply(WatchMessage("life", 8, HOST), now=0.0)
    made.note_reconciled()
    return made


def view(link: HostState, account: str = "") -> HostView:
    shown = link.view(1.0, (account, "game"))
    assert shown is not None
    return shown


def heartbeat(sequence: int, incarnation: str = "life") -> WatchMessage:
    return WatchMessage(incarnation, sequence, None)


def test_images_are_replaced_when_all_parts_have_arrived(link: HostState) -> None:
    def part(*images: str, first: bool = False, last: bool = False) -> None:
        reported = contract.ImagesReported(images, first=first, last=last)
        link.apply(WatchMessage("life", 9, reported), 1.0)

    part("a", first=True, last=True)
    assert view(link).host.images == {"a"}
    part("b", first=True)
    link.apply(WatchMessage("life", 9, HOST), 1.0)
    assert view(link).host.images == {"a"}
    part("c", first=True)  # the stream broke and restarted
    part("d")
    assert view(link).host.images == {"a"}
    part("e", last=True)
    assert view(link).host.images == {"c", "d", "e"}
    part(first=True, last=True)
    assert view(link).host.images == frozenset()


def test_sizes_of_images_are_replaced_with_the_images(link: HostState) -> None:
    def part(sizes: dict[str, int], *, first: bool, last: bool) -> None:
        reported = contract.ImagesReported(tuple(sizes), first, last, tuple(sizes.values()))
        link.apply(WatchMessage("life", 9, reported), 1.0)

    part({"a": 1}, first=True, last=False)
    assert link.image_sizes == {}
    part({"b": 2}, first=False, last=True)
    assert link.image_sizes == {"a": 1, "b": 2}
    part({"c": 3}, first=True, last=True)
    assert link.image_sizes == {"c": 3}


def test_bytes_of_sessions_are_those_of_their_newest_reports(link: HostState) -> None:
    half = state.MAX_SESSION_MEBIBYTES * 2**19

    def report(internal_id: str) -> None:
        session = replace(SESSION, internal_id=internal_id, size=half)
        link.apply(WatchMessage("life", 9, SessionsReported((session,))), 1.0)

    for number in range(10):
        report("kept")
        report(f"{number}")
        link.drop(f"{number}")
    for number in range(10):
        report(f"{number}")
        link.give_back(f"{number}")
    report("last")
    with pytest.raises(AgentExcessError, match="MiB of sessions"):
        link.apply(
            WatchMessage(
                "life", 9, SessionsReported((replace(SESSION, internal_id="m", size=2**20),))
            ),
            1.0,
        )
    report("kept")


@pytest.mark.parametrize("flood", ["images", "sessions", "bytes"])
@mock.patch.object(state, "MAX_IMAGES", 3)
@mock.patch.object(state, "MAX_SESSIONS", 3)
def test_excessive_report_is_an_error_and_forgotten(link: HostState, flood: str) -> None:

    def report(number: int) -> None:
        size = state.MAX_SESSION_MEBIBYTES * 2**18 if flood == "bytes" else 0
        session = replace(SESSION, internal_id=f"{number}", size=2 * size)
        images = contract.ImagesReported((f"{number}",), first=False, last=False)
        event = images if flood == "images" else SessionsReported((session,))
        link.apply(WatchMessage("life", 9, event), 1.0)

    for _ in range(2):  # the bound applies again from 0
        with pytest.raises(AgentExcessError, match="cannot follow the host: it reports more than"):
            for number in range(4):
                report(number)
        assert link.live_sessions == 0


def test_hold_takes_reservation_port_and_slot(link: HostState) -> None:
    link.hold("i", WANTED)
    taken = view(link)
    assert taken.held == Resources(2, 3)
    assert taken.starting == 1
    assert taken.in_flight == 1
    assert (Protocol.UDP, 20007) in taken.used_ports()


def test_given_back_hold_returns_everything(link: HostState) -> None:
    before = view(link)
    link.hold("i", WANTED)
    link.give_back("i")
    after = view(link)
    assert after.used_ports() == before.used_ports()
    assert replace(after, used_ports=before.used_ports) == before


def test_answer_releases_the_slot_and_watch_the_rest(link: HostState) -> None:
    link.hold("i", WANTED)
    link.answered("i", Answer(SESSION, "life"))
    assert view(link).starting == 0
    assert view(link).in_flight == 1
    link.apply(heartbeat(9), 1.0)
    assert link.in_flight == 1
    link.apply(heartbeat(10), 1.0)
    assert link.in_flight == 0
    assert view(link).held == Resources()
    assert (Protocol.UDP, 20007) in view(link).used_ports()


def test_start_counted_by_the_host_is_not_counted_twice(link: HostState) -> None:
    link.hold("i", WANTED)
    link.hold("other", WANTED)
    host = replace(HOST, reserved=WANTED.reservation, starting=frozenset({"i", "unknown"}))
    link.apply(WatchMessage("life", 9, host), 1.0)
    shown = view(link)
    assert shown.held == WANTED.reservation
    assert shown.in_flight == 1
    assert shown.starting == 3
    # Its session follows in the next message; the start has no answer yet.
    link.apply(WatchMessage("life", 10, replace(host, starting=frozenset())), 1.0)
    assert view(link).held == WANTED.reservation
    link.give_back("i")
    link.give_back("other")
    assert view(link).held == Resources()


def starting(*attempts: str) -> WatchMessage:
    return WatchMessage("life", 9, replace(HOST, start_slots=4, starting=frozenset(attempts)))


def test_attempt_without_an_answer_keeps_its_slot_while_its_host_starts_it(
    link: HostState,
) -> None:
    link.hold("i", OF_ALICE)
    link.apply(starting("i"), 1.0)
    link.give_back("i")
    assert view(link).held == Resources()
    assert view(link, "alice").starting_of_account == 1
    link.apply(starting(), 2.0)
    assert view(link).starting == 0
    assert view(link, "alice").starting_of_account == 0


def test_attempt_without_an_answer_keeps_its_slot_until_its_session_is_reported(
    link: HostState,
) -> None:
    link.hold("i", OF_ALICE)
    link.apply(starting("i"), 1.0)
    link.give_back("i")
    link.apply(WatchMessage("life", 10, SessionsReported((SESSION,))), 2.0)
    assert view(link).starting == 0
    link.apply(starting("i"), 3.0)  # sent before the host knew that it had started
    assert view(link).starting == 0


def test_start_that_another_process_placed_takes_a_slot(link: HostState) -> None:
    link.apply(starting("other", "standby"), 1.0)
    assert view(link).starting == 2
    link.hold("i", OF_ALICE)
    assert not link.has_start_slot("alice")
    assert link.has_start_slot("bob")
    link.apply(starting("other", "standby", "a third"), 2.0)
    assert not link.has_start_slot("bob")


def test_one_account_holds_at_most_half_of_the_start_slots_of_a_host(link: HostState) -> None:
    link.apply(starting(), 1.0)
    link.hold("i", OF_ALICE)
    assert link.has_start_slot("alice")
    link.hold("j", OF_ALICE)
    assert not link.has_start_slot("alice")
    assert link.has_start_slot("bob")


def test_answer_overtaken_by_the_watch_releases_at_once(link: HostState) -> None:
    link.hold("i", WANTED)
    link.apply(heartbeat(10), 1.0)
    link.answered("i", Answer(SESSION, "life"))
    assert link.in_flight == 0


def test_restarted_agent_releases_earlier_answers(link: HostState) -> None:
    link.hold("i", WANTED)
    link.answered("i", Answer(SESSION, "life"))
    link.apply(heartbeat(1, "next life"), 1.0)
    assert link.in_flight == 0


def test_newer_of_answer_and_watch_is_kept(link: HostState) -> None:
    link.hold("i", WANTED)
    ended = replace(SESSION, state=State.EXITED, sequence=11)
    link.apply(WatchMessage("life", 11, SessionsReported((ended,))), 1.0)
    link.forget(ended)
    assert link.answered("i", Answer(SESSION, "life")) == ended


def test_absent_session_is_gone_unless_its_answer_is_newer(link: HostState) -> None:
    assert link.is_gone("unknown")
    link.hold("i", WANTED)
    assert not link.is_gone("i")
    link.answered("i", Answer(SESSION, "life"))
    assert not link.is_gone("i")  # the snapshot of sequence 8 was taken before the start
    link.apply(heartbeat(10), 1.0)
    assert link.is_gone("i")


def test_session_absent_from_a_snapshot_is_dropped_unless_newer(link: HostState) -> None:
    old = replace(SESSION, internal_id="old")
    kept = replace(SESSION, internal_id="kept")
    link.apply(WatchMessage("life", 10, SessionsReported((old, kept))), 1.0)
    newer = replace(SESSION, internal_id="newer", ports=(Port(1, Protocol.UDP, 1),), sequence=11)
    link.hold("newer", WANTED)
    link.answered("newer", Answer(newer, "life"))
    link.drop_absent({"kept"})
    assert {session.internal_id for session in link.live()} == {"kept", "newer"}


def test_host_has_no_view_before_it_has_reconciled() -> None:
    link = HostState(Agent("h", "unix:/h", "local", "default"), cast("AgentClient", None))
    link.apply(WatchMessage("life", 8, HOST), now=0.0)
    assert link.view(0.0) is None


def test_port_is_free_once_its_session_has_ended(link: HostState) -> None:
    link.apply(WatchMessage("life", 10, SessionsReported((SESSION,))), 1.0)
    assert 20007 in link.taken_ports[Protocol.UDP]
    ended = replace(SESSION, state=State.EXITED, sequence=11)
    link.apply(WatchMessage("life", 11, SessionsReported((ended,))), 1.0)
    assert 20007 not in link.taken_ports[Protocol.UDP]
