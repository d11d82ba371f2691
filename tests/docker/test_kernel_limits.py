"""Limits of a running container that another program changes, on a real engine and kernel."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.host.kernel_limits import KernelLimits, differing, wanted_limits
from agent.domain.sessions.session import Process
from agent.kernel.control_groups import control_groups
from agent.kernel.limits import read_limits
from tests.demo_game import Image
from tests.docker import frequent_looks
from tests.docker.stack import Stack, a_stack, eventually, play_round
from tests.docker.test_readiness import container_of
from tiltyard.contract import MEBI, NANO

LIMITS = {"cpu": 1, "ram": 256, "pids": 64}
RESERVATION = {"cpu": 0.1, "ram": 32}


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    with a_stack(docker_engine, demo_image, program=frequent_looks.PROGRAM) as made:
        made.make_game("limited", limits=LIMITS, reservation=RESERVATION)
        yield made


@pytest.fixture
def session(stack: Stack) -> Iterator[dict[str, Any]]:
    made = stack.start(image="limited")
    yield made
    stack.end(made["id"])


def process_of(stack: Stack, made: dict[str, Any]) -> Process:
    return Process(**stack.record(made["id"])["process"])


def limits_of(process: Process) -> KernelLimits:
    found = read_limits(process)
    assert found is not None
    return found


def is_as_recorded(limits: KernelLimits) -> bool:
    """Return whether the limits are those of the application; swap may be unknown."""
    is_without_swap = limits.swap in {None, 0}
    return is_without_swap and (limits.memory, limits.cores, limits.pids) == (256 * MEBI, 1, 64)


def changed_limits(stack: Stack, made: dict[str, Any]) -> set[str]:
    """The names of the limits of a session that its host has found changed and set again."""
    internal_id = stack.record(made["id"])["internal_id"]
    lines = stack.agent.process.log.read_text().splitlines()
    found = [line for line in lines if "limits were changed, set again" in line]
    return {
        name
        for line in found
        if internal_id in line
        for name in ("memory", "swap", "cores", "pids")
        if name in line
    }


def until_set_again(stack: Stack, made: dict[str, Any], changed: set[str]) -> None:
    """Wait until the host has set these limits again, which may take it more than one look."""
    eventually(lambda: changed <= changed_limits(stack, made), f"{changed} are set again")
    process = process_of(stack, made)
    eventually(lambda: is_as_recorded(limits_of(process)), "all are as recorded")


def test_limits_that_docker_update_has_changed_are_set_again(
    stack: Stack, session: dict[str, Any]
) -> None:
    process = process_of(stack, session)
    assert is_as_recorded(limits_of(process))
    container = container_of(stack, session["id"])
    stack.engine.api.update_container(
        container.id, mem_limit=512 * MEBI, memswap_limit=1024 * MEBI, cpu_shares=7
    )
    until_set_again(stack, session, {"memory"})
    container.reload()
    config = container.attrs["HostConfig"]
    assert config["Memory"] == 256 * MEBI
    assert config["MemorySwap"] == 256 * MEBI
    assert config["CpuShares"] == 102
    play_round(session)
    assert process_of(stack, session) == process


def test_limits_that_were_lifted_behind_the_engine_are_set_again(
    stack: Stack, session: dict[str, Any]
) -> None:
    """Systemd lifts limits so: the engine still assumes that its own are set."""
    process = process_of(stack, session)
    files = group_files(process)
    assert files
    for path, text in files.items():
        path.write_text(text)
    until_set_again(stack, session, {"cores", "pids"})
    play_round(session)


def test_engine_sets_cores_as_the_agent_expects_them(stack: Stack) -> None:
    stack.make_game("third", limits=LIMITS | {"cpu": 1 / 3}, reservation=RESERVATION)
    made = stack.start(image="third")
    found = limits_of(process_of(stack, made))
    wanted = wanted_limits(256 * MEBI, round(NANO / 3), 64)
    assert differing(wanted, found, page_bytes=os.sysconf("SC_PAGE_SIZE")) == ()
    stack.end(made["id"])


def group_files(process: Process) -> dict[Path, str]:
    """The files of limits of a process's control group, with other limits to write."""
    groups = Path(f"/proc/{process.pid}/cgroup").read_text()
    texts = {
        "memory.memsw.limit_in_bytes": str(1024 * MEBI),
        "memory.swap.max": "max",
        "cpu.cfs_quota_us": "-1",
        "cpu.max": "max",
        "pids.max": "4000",
    }
    folders = [group.folders()[0] for group in control_groups(groups) if group.path]
    found = {folder / name: text for folder in folders for name, text in texts.items()}
    return {path: text for path, text in found.items() if path.exists()}
