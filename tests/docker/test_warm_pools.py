"""Warm pools through the public API, on the real engine."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from tests.docker.stack import Stack, eventually, play_round
from tests.faults.plugin import Rounds
from tests.faults.records import recorded_sessions
from tests.support.api_client import Answer
from tests.support.deployment import APPLICATION, REGION

POOL = f"/warm-pool/{APPLICATION}/{REGION}"
CALLERS = 50
SHORT = {"CAPACITY_UNAVAILABLE", "HOSTS_UNRESPONSIVE"}
"""Codes of refusals; a host on a busy machine may be unresponsive for a while."""
LARGE = 20


def keep(stack: Stack, size: int) -> None:
    """Set a pool of this size, and wait until it is full."""
    stack.client.put(POOL, {"size": size}).expect(204)
    eventually(lambda: ready(stack) == size, f"{size} are ready", patience=60)


def ready(stack: Stack) -> int:
    [pool] = stack.client.get("/warm-pool").expect(200).json()["warmPools"]
    return int(pool["ready"])


def began_as_standbys(stack: Stack, *, claimed: bool) -> set[str]:
    """Internal ids of live sessions that began as standbys, by the host's records."""
    return {
        each.internal_id
        for each in recorded_sessions(stack.agent.state_dir)
        if each.standby and bool(each.claim) == claimed and each.end_time is None
    }


def standbys(stack: Stack) -> set[str]:
    return began_as_standbys(stack, claimed=False)


def at_once(stack: Stack, callers: int) -> list[Answer]:
    """The responses to `callers` concurrent starts."""
    together = Barrier(callers)

    def start() -> Answer:
        together.wait()
        return stack.try_to_start()

    with ThreadPoolExecutor(callers) as pool:
        return [call.result() for call in [pool.submit(start) for _ in range(callers)]]


def made_of(answers: list[Answer]) -> list[dict[str, Any]]:
    """The started sessions; all other calls must have returned 420."""
    for answer in answers:
        if answer.status != 201:
            assert answer.expect(420).json()["code"] in SHORT
    return [answer.json() for answer in answers if answer.status == 201]


def end_all(stack: Stack, sessions: list[dict[str, Any]]) -> None:
    """End these sessions and the pool; nothing may run then."""
    stack.client.request("DELETE", POOL).expect(204)
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(stack.end, [each["id"] for each in sessions]))
    eventually(lambda: not standbys(stack), "no standby is left")


@pytest.mark.slow
@pytest.mark.thorough
def test_f18_of_fifty_callers_one_gets_the_last_standby(stack: Stack, rounds: Rounds) -> None:
    for _ in range(rounds(1, 5)):
        keep(stack, 1)
        [last] = standbys(stack)
        made = made_of(at_once(stack, CALLERS))
        assert len([session for session in made if session["id"] == last]) == 1
        assert len({session["id"] for session in made}) == len(made)
        addresses = [(session["host"], str(session["ports"])) for session in made]
        assert len(set(addresses)) == len(made)
        for session in made:
            play_round(session)
        eventually(lambda: ready(stack) == 1, "the pool is full again")
        end_all(stack, made)


@pytest.mark.thorough
@pytest.mark.slow
def test_pool_of_twenty_stays_full_while_a_caller_claims_all(stack: Stack) -> None:
    keep(stack, LARGE)
    assert len(standbys(stack)) == LARGE
    made = made_of([stack.try_to_start() for _ in range(LARGE)])
    assert len(made) == LARGE
    assert {session["id"] for session in made} == began_as_standbys(stack, claimed=True)
    eventually(lambda: ready(stack) == LARGE, "the pool is full again", patience=60)
    again = standbys(stack)
    assert len(again) == LARGE
    more = made_of(at_once(stack, LARGE))
    assert {session["id"] for session in more} == again
    eventually(lambda: ready(stack) == LARGE, "the pool is full again", patience=60)
    end_all(stack, made + more)
