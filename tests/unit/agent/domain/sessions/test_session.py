import dataclasses
import itertools
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import InvalidArgumentError
from agent.domain.sessions import environment
from agent.domain.sessions.environment import (
    check_arguments,
    check_environment,
    container_environment,
    expanded_program,
    injected_environment,
)
from agent.domain.sessions.session import TRANSITIONS, Port
from tests.support.agent.samples import a_session
from tiltyard.contract import Protocol, State


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_only_transitions_of_the_table_are_allowed(before: State, after: State) -> None:
    session = dataclasses.replace(a_session(), state=before)
    if after in TRANSITIONS[before]:
        assert session.to(after, at=0.0).state is after
    else:
        with pytest.raises(ValueError, match="cannot go from"):
            session.to(after, at=0.0)


@pytest.mark.parametrize("state", [State.EXITED, State.DEAD])
def test_nothing_leaves_an_ended_state(state: State) -> None:
    assert TRANSITIONS[state] == frozenset()


@pytest.mark.parametrize("state", [state for state in State if not state.ended])
def test_every_live_state_can_end(state: State) -> None:
    assert State.EXITED in TRANSITIONS[state]
    assert State.DEAD in TRANSITIONS[state]


def test_with_changes_rejects_a_state() -> None:
    with pytest.raises(ValueError, match="with `to`"):
        a_session().with_changes(state=State.RUNNING)


def test_injected_environment_has_session_host_and_ports() -> None:
    ports = (
        Port(7777, Protocol.UDP, 20001),
        Port(7777, Protocol.TCP, 20002),
        Port(7778, Protocol.TCP, 20003, tls=True),
        Port(7779, Protocol.TCP, 20004, tls=True, inner=20005),
    )
    assert injected_environment(("TILTYARD", "GAMEYE"), "match-1", "192.0.2.7", ports) == {
        f"{prefix}_{name}": value
        for prefix in ("TILTYARD", "GAMEYE")
        for name, value in {
            "SESSION_ID": "match-1",
            "CONTAINER": "match-1",
            "HOST": "192.0.2.7",
            "IP": "192.0.2.7",
            "PORT_UDP_7777": "20001",
            "PORT_TCP_7777": "20002",
            "PORT_TCP_7778": "20003",
            "PORT_TCP_7779": "20005",  # the inner port
        }.items()
    }


INJECTED = {"T_HOST": "h", "T_PORT_UDP_77": "1", "T_PORT_UDP_7777": "2", "T_SESSION_ID": "$T_HOST"}


def test_only_injected_names_are_expanded_longest_first_and_once() -> None:
    expanded = {
        "plain": "plain",
        "": "",
        "$T_HOST": "h",
        "${T_HOST}:${T_PORT_UDP_7777}": "h:2",
        "$T_PORT_UDP_7777": "2",
        "$T_PORT_UDP_77": "1",
        "$T_PORT_UDP_777": "17",
        "$T_HOST$T_HOST": "hh",
        "$HOME ${HOME} $": "$HOME ${HOME} $",
        "$$T_HOST": "$h",
        "${T_HOST": "${T_HOST",
        "$T_HOSTILE": "hILE",
        "$T_SESSION_ID": "$T_HOST",
        "100$": "100$",
    }
    texts = {text: text for text in expanded}
    assert container_environment(texts, INJECTED) == expanded | INJECTED
    many = "$" * 700_000  # in linear time
    assert container_environment({"X": many}, INJECTED)["X"] == many


def test_rejects_injected_names_but_allows_their_prefix() -> None:
    with pytest.raises(InvalidArgumentError, match="T_HOST is set by the host"):
        check_environment({"T_HOST": "mine"}, INJECTED)
    check_environment({"T_OTHER": "mine"}, INJECTED)
    assert container_environment({"T_OTHER": "mine"}, INJECTED)["T_OTHER"] == "mine"


@given(
    st.dictionaries(
        st.sampled_from(["A", "é"]),
        st.lists(st.sampled_from(["$T_HOST", "${T_HOST}", "$T_PORT_UDP_777", "$", "é", "x"])).map(
            "".join
        ),
    ),
    st.integers(0, 60),
    st.integers(0, 120),
)
def test_limits_count_expanded_values(caller: dict[str, str], most: int, most_in_all: int) -> None:
    injected = {"T_HOST": "h\U0001f3aest", "T_PORT_UDP_777": "7"}
    sizes = {
        name: len(f"{name}={value}".encode())
        for name, value in container_environment(caller, injected).items()
    }
    fits = sum(sizes.values()) <= most_in_all and all(sizes[name] <= most for name in caller)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "MAX_STRING_BYTES", most)
        patch.setattr(environment, "MAX_ENVIRONMENT_BYTES", most_in_all)
        with nullcontext() if fits else pytest.raises(InvalidArgumentError):
            check_environment(caller, injected)


LONGEST = "é" * (64 * 1024 - 1) + "x"  # 128 KiB without one byte


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [LONGEST],
        [LONGEST] * 4,  # 512 KiB without four bytes
        ["x"] * 1000,
    ],
)
def test_accepts_arguments_that_the_kernel_executes(arguments: list[str]) -> None:
    check_arguments(arguments, INJECTED)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["", LONGEST + "x"], "number 2 has more than 131071 bytes after expansion"),
        ([LONGEST] * 4 + ["xxxxx"], "it has more than 524288 bytes in all"),
    ],
)
def test_rejects_arguments_that_are_too_long(arguments: list[str], cause: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^cannot accept args: {cause}$"):
        check_arguments(arguments, INJECTED)


def test_only_the_callers_arguments_are_expanded() -> None:
    program = ("/game", "$T_HOST", "--public", "${T_HOST}:$T_PORT_UDP_7777", "$HOME", "$$T_HOST")
    expanded = expanded_program(program, program[2:], INJECTED)
    assert expanded == ("/game", "$T_HOST", "--public", "h:2", "$HOME", "$h")
    assert expanded_program(program, (), INJECTED) == program


@pytest.mark.parametrize(
    "arguments",
    [
        ["$T_HOST" + "x" * 131_062],
        ["$T_SESSION_ID"] * 4,
    ],
)
def test_limits_count_expanded_arguments(arguments: list[str]) -> None:
    longer = {"T_HOST": "an.example", "T_SESSION_ID": LONGEST + "x"}
    check_arguments(arguments, {"T_HOST": "h", "T_SESSION_ID": "id"})
    with pytest.raises(InvalidArgumentError, match=r"^cannot accept args: number 1 has more than"):
        check_arguments(arguments, longer)


def test_expanded_arguments_are_bounded_together() -> None:
    longer = {"T_SESSION_ID": LONGEST}
    check_arguments(["$T_SESSION_ID"] * 4, longer)
    with pytest.raises(InvalidArgumentError, match="it has more than 524288 bytes in all"):
        check_arguments(["$T_SESSION_ID"] * 5, longer)
