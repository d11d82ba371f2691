"""Images that start as root and drop to a user, or have an init of their own, as published."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.docker.programs import SHELL, programs, script
from tests.docker.stack import Stack, eventually, play_round
from tests.support.agent.tars import Entry, folder
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

READY = {"Prefer": "wait=ready"}
SAVED = "SIGTERM: saving"
DROPS = ["CHOWN", "SETGID", "SETUID"]
DROPPING = [
    *programs(SHELL, "/usr/sbin/gosu", "/bin/chown"),
    folder(b"saves"),
    script(
        "/start",
        "chown -R 1000:1000 /saves || exit 1\n"
        f"exec gosu 1000:1000 {SHELL} -c 'echo kept > /saves/own && exec /game'",
    ),
]
SERVICE = [folder(b"service"), folder(b"service/game"), script("/service/game/run", "exec /game")]
RUNIT = [
    *programs(SHELL, "/sbin/runit", "/usr/bin/runsvdir", "/usr/bin/runsv", "/usr/bin/sv"),
    folder(b"etc"),
    folder(b"etc/runit"),
    script("/etc/runit/1", "exit 0"),
    script("/etc/runit/2", "exec runsvdir -P /service"),
    script("/etc/runit/3", "sv -w 7 force-stop /service/game; echo stage 3"),
    folder(b"run"),
    script("/run/runit.stopit", ""),
    *SERVICE,
]
S6 = [*programs(SHELL, "/usr/bin/s6-svscan", "/usr/bin/s6-supervise"), *SERVICE]


def push(registry: Registry, name: str, entries: Sequence[Entry], **config: object) -> None:
    push_image(registry.address, name, entries=entries, config={"User": "", **config})


def test_image_that_gives_its_files_away_and_becomes_a_user(
    shared_stack: Stack, registry: Registry
) -> None:
    push(registry, "dropping", DROPPING, Entrypoint=["/start"])
    shared_stack.make_game("dropping", repository="dropping")
    refused = shared_stack.try_to_start(READY, image="dropping", id="without")
    assert "its image starts as root" in refused.expect(504).json()["details"]
    report = shared_stack.report("without")
    assert report["exitCode"] == 1
    assert "Operation not permitted" in report["log"]

    asked = {"hostNetwork": True, "capabilities": DROPS}
    shared_stack.control_plane.operator.put("/operator/node-pool/default", asked).expect(204)
    shared_stack.client.put("/application/dropping", {"capabilities": DROPS}).expect(204)
    made = shared_stack.try_to_start(READY, image="dropping").expect(201).json()
    play_round(made)
    [program] = below(first(shared_stack)[0])
    status = Path(f"/proc/{program}/status").read_text()
    assert "Uid:\t1000\t1000\t1000\t1000\n" in status
    assert "CapEff:\t0000000000000000\n" in status
    shared_stack.end(made["id"])
    report = shared_stack.report(made["id"])
    assert report["exitCode"] == 0
    assert report["signalDelivered"] is True
    assert SAVED in report["log"]


@pytest.mark.parametrize(
    ("hosts", "entries", "command", "signal", "exit_code"),
    [
        # Once it has stopped all, runit would power the machine off, which no container may.
        pytest.param(
            "shared_stack", RUNIT, ["/sbin/runit"], "SIGCONT", 137, marks=pytest.mark.slow
        ),
        ("patient_stack", S6, ["/usr/bin/s6-svscan", "/service"], "SIGTERM", 0),
    ],
    ids=["runit", "s6"],
)
def test_init_of_an_image_is_process_1(
    request: pytest.FixtureRequest,
    registry: Registry,
    hosts: str,
    entries: Sequence[Entry],
    command: list[str],
    signal: str,
    exit_code: int,
) -> None:
    stack: Stack = request.getfixturevalue(hosts)
    name = Path(command[0]).name
    path = {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
    push(registry, name, entries, Entrypoint=command, StopSignal=signal, **path)
    stack.make_game(name, repository=name, init="image")
    made = stack.try_to_start(READY, image=name, restart=True).expect(201).json()
    assert first(stack)[1] == name
    play_round(made)

    pid = first(stack)[0]
    stack.restart_agent()
    os.kill(game(stack), SIGKILL)  # its supervisor starts it again
    eventually(lambda: game(stack) != 0, "the game runs again")
    play_round(made)
    assert first(stack)[0] == pid

    os.kill(pid, SIGKILL)
    eventually(lambda: first(stack)[0] not in {pid, 0}, "the session has restarted")
    eventually(lambda: first(stack)[1] == name, "its init runs again")
    play_round(made)
    stack.end(made["id"])
    report = stack.report(made["id"])
    assert report["restartCount"] == 1
    assert report["failedRuns"][0]["exitCode"] == 137
    assert report["end_reason"] == "stopped"
    assert report["stopSignal"] == signal
    assert report["signalDelivered"] is True
    assert SAVED in report["log"]
    assert report["exitCode"] == exit_code
    assert report["forced"] is (exit_code == 137)


def first(stack: Stack) -> tuple[int, str]:
    """The first process of the only live container and its name; 0 if there is none."""
    for pid in stack.pids().values():
        with suppress(OSError):
            return pid, Path(f"/proc/{pid}/comm").read_text().strip()
    return 0, ""


def below(pid: int) -> list[int]:
    """The children of a process; none of one that has ended."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def game(stack: Stack) -> int:
    """The game, wherever it is below the first process; 0 if it does not run."""
    waiting = [first(stack)[0]]
    while waiting:
        pid = waiting.pop()
        waiting += below(pid)
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "game\n":
                return pid
    return 0
