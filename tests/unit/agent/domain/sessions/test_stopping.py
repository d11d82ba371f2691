import pytest

from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import Member, next_wave, program_of, signal_number

INIT = 10


def member(pid: int, parent: int = INIT, ticks: int | None = None) -> Member:
    return Member(Process(pid, pid if ticks is None else ticks), parent, f"p{pid}")


SCRIPT = member(20)
GAME = member(21, parent=20)
HELPER = member(22, parent=21)
ORPHAN = member(21, parent=INIT)  # the game once its script has ended


def pids(
    members: list[Member], at_first: list[Member], *signalled: Member, is_late: bool = False
) -> list[int]:
    sent = [each.process for each in signalled]
    wave = next_wave(members, at_first=at_first, signalled=sent, is_late=is_late)
    return [process.pid for process in wave]


@pytest.mark.parametrize("is_late", [False, True])
def test_program_gets_the_signal_first(*, is_late: bool) -> None:
    assert pids([GAME, HELPER, SCRIPT], [GAME, HELPER, SCRIPT], is_late=is_late) == [20]


def test_nobody_gets_it_while_the_program_has_it() -> None:
    assert pids([SCRIPT, GAME], [SCRIPT, GAME], SCRIPT) == []


def test_rest_gets_it_once_the_program_has_ended() -> None:
    assert pids([ORPHAN, HELPER], [SCRIPT, GAME, HELPER], SCRIPT) == [21, 22]


def test_process_forked_while_others_were_signalled_gets_it_once_those_have_ended() -> None:
    forked = member(30)
    assert pids([forked], [SCRIPT, GAME], SCRIPT, GAME) == [30]


def test_all_get_it_late_if_nothing_that_has_it_has_ended() -> None:
    assert pids([SCRIPT, GAME, HELPER], [SCRIPT, GAME, HELPER], SCRIPT, is_late=True) == [21, 22]


def test_nobody_gets_it_late_while_what_is_left_of_a_wave_shuts_down() -> None:
    other = member(23)
    assert pids([ORPHAN], [SCRIPT, GAME, other], SCRIPT, GAME, other, is_late=True) == []


def test_process_that_was_started_during_the_stop_does_not_get_it_late() -> None:
    saver = member(30, parent=21)
    assert pids([SCRIPT, GAME, saver], [SCRIPT, GAME], SCRIPT, is_late=True) == [21]


def test_process_that_has_it_does_not_get_it_again() -> None:
    assert pids([SCRIPT, GAME], [SCRIPT, GAME], SCRIPT, GAME, is_late=True) == []


def test_reused_process_id_is_another_process() -> None:
    reused = member(20, ticks=99)
    assert pids([reused], [SCRIPT], SCRIPT) == [20]


def test_nothing_is_left_to_signal() -> None:
    assert pids([], [SCRIPT], SCRIPT) == []
    assert pids([], []) == []


def test_program_is_the_oldest_child_of_init() -> None:
    adopted = member(19, ticks=40)
    assert program_of([adopted, GAME, SCRIPT]) == SCRIPT


def test_program_in_the_place_of_init_is_the_program() -> None:
    first = member(INIT, parent=1)
    assert program_of([SCRIPT, GAME, first]) == first


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("SIGTERM", 15),
        ("TERM", 15),
        ("int", 2),
        ("2", 2),
        ("64", 64),
        ("SIGRTMIN+3", 37),
        ("RTMAX-1", 63),
        ("SIGRTMIN", 34),
        ("0", None),
        ("65", None),
        ("SIGRTMIN-1", None),
        ("SIGRTMAX+1", None),
        ("SIGNONE", None),
        ("", None),
    ],
)
def test_names_of_signals(name: str, number: int | None) -> None:
    assert signal_number(name) == number


def test_masks_have_a_bit_for_each_signal() -> None:
    game = Member(Process(1, 1), 0, "game", caught=1 << 9, ignored=1 << 1, pending=1 << 14)
    assert [number for number in range(1, 65) if game.catches(number)] == [10]
    assert [number for number in range(1, 65) if game.ignores(number)] == [2]
    assert [number for number in range(1, 65) if game.waits_for(number)] == [15]
