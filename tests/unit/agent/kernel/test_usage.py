import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.domain.sessions.history import Usage
from agent.domain.sessions.session import Process
from agent.kernel.usage import counters_of, find_counters
from tests.support.agent.hosts import Agent
from tests.support.tasks import running

ID = "0123456789abcdef" * 4
V1 = f"""12:pids:/docker/{ID}
5:memory:/docker/{ID}
4:cpu,cpuacct:/docker/{ID}
1:name=systemd:/docker/{ID}
0::/
"""
V2 = f"0::/system.slice/docker-{ID}.scope\n"
STAT = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\ncore_sched.force_idle_usec 0\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_v1_has_a_folder_per_controller(tmp_path: Path) -> None:
    write(tmp_path / "cpuacct/docker" / ID / "cpuacct.usage", "2500000000\n")
    memory = tmp_path / "memory/docker" / ID
    write(memory / "memory.max_usage_in_bytes", "4096\n")
    write(memory / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    write(tmp_path / "pids/docker" / ID / "pids.events", "max 5\n")
    assert counters_of(V1, tmp_path).read() == Usage(2.5, 4096, 3, 5)


def test_cgroup_v2_has_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / f"system.slice/docker-{ID}.scope"
    write(folder / "cpu.stat", STAT)
    write(folder / "memory.peak", "8192\n")
    write(folder / "memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    write(folder / "pids.events", "max 2\n")
    assert counters_of(V2, tmp_path).read() == Usage(1.5, 8192, 1, 2)


def test_hybrid_cgroups_have_each_controller_in_one_version(tmp_path: Path) -> None:
    write(tmp_path / "memory/docker" / ID / "memory.max_usage_in_bytes", "4096\n")
    write(tmp_path / "docker" / ID / "cpu.stat", STAT)
    groups = f"5:memory:/docker/{ID}\n0::/docker/{ID}\n"
    assert counters_of(groups, tmp_path).read() == Usage(1.5, 4096)


@pytest.mark.parametrize("groups", [V1, V2, "", "0::/\n", "5:memory:/\n2:cpuacct:/\n"])
def test_missing_counter_and_the_root_group_are_none(tmp_path: Path, groups: str) -> None:
    for path in ("cpu.stat", "memory.peak"):
        write(tmp_path / path, STAT)
    write(tmp_path / "cpuacct/cpuacct.usage", "2500000000\n")
    write(tmp_path / "memory/memory.max_usage_in_bytes", "4096\n")
    assert counters_of(groups, tmp_path).read() == Usage()


@pytest.mark.parametrize("text", ["", "max\n", "usage_usec\n", "user_usec 1\n", "\xff"])
def test_malformed_counter_is_none(tmp_path: Path, text: str) -> None:
    folder = tmp_path / f"system.slice/docker-{ID}.scope"
    write(folder / "cpu.stat", text)
    write(folder / "memory.peak", text)
    assert counters_of(V2, tmp_path).read() == Usage()


def test_ended_or_replaced_process_has_no_counters() -> None:
    assert find_counters(Process(2**22 + 1, 1)) is None
    assert find_counters(Process(1, -1)) is None


ONE = Process(100, 1)
TWO = Process(200, 2)


@pytest.fixture
async def agent(agent: Agent) -> AsyncIterator[Agent]:
    """An agent that samples usage."""
    async with running(agent.usage.run()):
        yield agent


async def test_run_that_ends_at_once_has_a_sample(agent: Agent) -> None:
    agent.cgroups.use(ONE, cpu_seconds=0.1, memory_bytes=1)
    await agent.usage.watch("one", ONE)
    agent.cgroups.remove(ONE)
    assert await agent.usage.read("one") == Usage(0.1, 1)


async def test_one_task_reads_young_runs_every_second_and_old_every_five(agent: Agent) -> None:
    tasks = len(asyncio.all_tasks())
    await agent.usage.watch("one", ONE)
    await agent.clock.advance(7)
    for holder, process in (("one", ONE), ("two", TWO)):
        await agent.usage.watch(holder, process)
        agent.cgroups.use(process, cpu_seconds=1, memory_bytes=1)
    await agent.clock.advance(2)
    assert len(asyncio.all_tasks()) == tasks
    for process in (ONE, TWO):
        agent.cgroups.remove(process)
    assert await agent.usage.read("one") == Usage()
    assert await agent.usage.read("two") == Usage(1, 1)
    agent.cgroups.use(ONE, cpu_seconds=2, memory_bytes=1)
    await agent.clock.advance(1)
    agent.cgroups.remove(ONE)
    assert await agent.usage.read("one") == Usage(2, 1)


async def test_a_run_that_waits_is_read_once_it_begins(agent: Agent) -> None:
    await agent.usage.watch("one", ONE, waits=True)
    agent.cgroups.use(ONE, cpu_seconds=1, memory_bytes=1)
    await agent.clock.advance(6)
    agent.cgroups.remove(ONE)
    assert await agent.usage.read("one") == Usage()
    agent.usage.begin("one")
    agent.cgroups.use(ONE, cpu_seconds=1, memory_bytes=1)
    await agent.clock.advance(2)
    agent.cgroups.remove(ONE)
    assert await agent.usage.read("one") == Usage(1, 1)


async def test_a_forgotten_run_is_not_read(agent: Agent) -> None:
    await agent.usage.watch("one", ONE)
    agent.usage.forget("one")
    agent.usage.begin("one")
    agent.cgroups.use(ONE, cpu_seconds=1, memory_bytes=1)
    assert await agent.usage.read("one") == Usage()


async def test_a_run_is_read_once_more_at_its_end(agent: Agent) -> None:
    await agent.usage.watch("one", ONE)
    agent.cgroups.use(ONE, cpu_seconds=1, memory_bytes=1)
    assert await agent.usage.read("one") == Usage(1, 1)
    agent.cgroups.use(ONE, cpu_seconds=1.5, memory_bytes=2)
    assert await agent.usage.read("one") == Usage(1.5, 2)


async def test_a_run_replaces_the_earlier_one_of_its_container(agent: Agent) -> None:
    for process in (ONE, TWO):
        await agent.usage.watch("one", process)
        agent.cgroups.use(process, cpu_seconds=1, memory_bytes=process.pid)
    assert await agent.usage.read("one") == Usage(1, TWO.pid)


async def test_ignores_decreasing_counter(agent: Agent) -> None:
    await agent.usage.watch("one", ONE)
    agent.cgroups.use(ONE, cpu_seconds=3, memory_bytes=5)
    await agent.usage.read("one")
    agent.cgroups.use(ONE, cpu_seconds=2, memory_bytes=6)
    assert await agent.usage.read("one") == Usage(3, 6)
