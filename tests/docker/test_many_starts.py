"""F44 on the real engine, which creates containers almost serially."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.docker.stack import Stack, eventually
from tests.support.deployment import APPLICATION, REGION

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.root]

CALLERS = 20


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_f44_twenty_starts_at_once_are_sessions_that_serve_or_a_420(stack: Stack) -> None:
    client, body = stack.client, {"location": REGION, "image": APPLICATION}
    with ThreadPoolExecutor(CALLERS) as callers:
        starts = [callers.submit(client.post, "/session", body) for _ in range(CALLERS)]
        answers = [start.result() for start in starts]
    made = [answer.json() for answer in answers if answer.status == 201]
    assert made
    for answer in answers:
        if answer.status != 201:
            assert answer.expect(420).json()["code"] == "CAPACITY_UNAVAILABLE"
            assert int(answer.headers["retry-after"]) >= 1
    eventually(lambda: len(stack.containers()) == len(made), "only returned sessions remain")
    sessions = client.get("/session").expect(200).json()["sessions"]
    assert {session["id"] for session in sessions} == {session["id"] for session in made}
    for session in made:
        [port] = [port["host"] for port in session["ports"] if port["container"] == UDP_PORT]
        udp_round_trip(session["host"], port)
    with ThreadPoolExecutor(CALLERS) as callers:
        ends = [callers.submit(client.delete_session, session["id"]) for session in made]
        for end in ends:
            end.result().expect(204)
