"""F44 on the real engine, which creates containers almost serially."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.docker.stack import Stack, eventually, play_round
from tests.faults.plugin import Figure

CALLERS = 20


@pytest.mark.slow
def test_f44_twenty_starts_at_once_are_sessions_that_serve_or_a_420(
    stack: Stack, figure: Figure
) -> None:
    with ThreadPoolExecutor(CALLERS) as callers:
        starts = [callers.submit(stack.try_to_start) for _ in range(CALLERS)]
    answers = [start.result() for start in starts]
    made = [answer.json() for answer in answers if answer.status == 201]
    figure("started", f"{len(made)} of {CALLERS}")
    assert len(made) >= CALLERS // 2
    for answer in answers:
        if answer.status != 201:
            assert answer.expect(420).json()["code"] == "CAPACITY_UNAVAILABLE"
            assert int(answer.headers["retry-after"]) >= 1
    eventually(lambda: len(stack.containers()) == len(made), "only returned sessions remain")
    assert {session["id"] for session in stack.client.sessions()} == {
        session["id"] for session in made
    }
    for session in made:
        play_round(session)
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(stack.end, [session["id"] for session in made]))
