"""`make demo`: one session through the public API, from the call to the player's packet and back.

Every step prints one line with its time. Exits with 0, or with 1 at the first step that fails.
"""

import re
import sys

from tests.demo_game import TCP_PORT, UDP_PORT
from tests.demo_game.player import saved, tcp_greeting, udp_round_trip
from tests.support.api_client import ApiClient
from tests.support.deployment import (
    APPLICATION,
    PATIENT,
    REGION,
    Deployment,
    StepFailedError,
    Steps,
    exit_on_signals,
)

_LINES = 10  # Lines of the log to follow: one second of the game


def play(client: ApiClient, steps: Steps) -> None:
    """Play one session; StepFailedError at the first step that fails."""
    with steps.step("POST /session") as notes:
        session = client.post("/session", {"location": REGION, "image": APPLICATION}).expect(201)
        made = session.json()
        ports = {(port["type"], port["container"]): port["host"] for port in made["ports"]}
        udp = ports["udp", UDP_PORT]
        tcp = ports["tcp", TCP_PORT]
        notes.append(f"{made['id']} plays on {made['host']}:{udp}")
    with steps.step("a datagram there and back") as notes:
        notes.append(f"{udp_round_trip(made['host'], udp) * 1000:.1f} ms from the first one sent")
    with steps.step("a line over TCP") as notes:
        line = tcp_greeting(made["host"], tcp)
        _check(line == f"demo game {made['id']}", f"the game said {line!r}")
        notes.append(line)
    with steps.step(f"GET /logs?follow=true, {_LINES} lines without a gap") as notes:
        with client.stream("/logs", id=made["id"], follow="true", timeout=30) as log:
            lines = [log.readline().decode() for _ in range(_LINES)]
        _check_numbers(lines)
        notes.append(f"last {lines[-1].strip()}")
    with steps.step("DELETE /session/{id}"):
        client.delete_session(made["id"]).expect(204)
    with steps.step("GET /artifacts holds what was written at SIGTERM") as notes:
        archive = client.get("/artifacts", session=made["id"], path="/data").expect(200).body
        save = saved(archive)
        _check(save["session"] == made["id"], f"it says {save}")
        notes.append(f"{save['lines']} lines, {save['datagrams']} datagrams")
    with steps.step("GET /logs after the end, whole") as notes:
        sealed = client.get("/logs", id=made["id"]).expect(200).body.decode().splitlines()
        _check_numbers(sealed)
        _check(sealed[-1].endswith("SIGTERM: saving"), f"it ends with {sealed[-1]!r}")
        _check(len(sealed) == save["lines"], f"{len(sealed)} of {save['lines']} lines")
        notes.append(sealed[-1])


def main() -> int:
    """Run the demo and return the exit code."""
    exit_on_signals(130)
    steps = Steps()
    try:
        with Deployment(steps, **PATIENT) as deployment:
            play(deployment.client, steps)
    except StepFailedError:
        return 1
    steps.done("demo")
    return 0


def _check(true: bool, reason: str) -> None:
    if not true:
        raise AssertionError(reason)


def _check_numbers(lines: list[str]) -> None:
    """Check that lines are numbered 1, 2, 3, …"""
    for expected, line in enumerate(lines, 1):
        found = re.match(r"(\d{6,}) \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S", line)
        _check(found is not None and int(found[1]) == expected, f"line {expected} is {line!r}")


if __name__ == "__main__":
    sys.exit(main())
