"""A pytest plugin that fails tests with leaked threads or tasks, or a blocked event loop."""

import asyncio
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

THREAD_LOOKS = 3000  # A thread may wait for a slow disk
_TASK_LOOKS = 200
_PAUSE = 0.01
"""Number of checks for leftovers, and seconds between them: stalls of the machine do not count."""
_NOT_OURS = ("_poll_wrapper", "asyncio_", "Dummy-")
"""Threads of grpc and asyncio, which end with the loop, after this check.

``Dummy-`` threads were started by C code: grpc's, if the garbage collector happens to run there.
"""


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    for _ in range(THREAD_LOOKS):
        if not (left := ours(set(threading.enumerate()) - before)):
            break
        time.sleep(_PAUSE)
    assert not left, f"the test left threads behind: {left}"


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Fail a coroutine test that leaves a task behind or blocks its loop in our code."""
    if isinstance(request.node, pytest.Function) and inspect.iscoroutinefunction(request.node.obj):
        request.getfixturevalue("_guarded_loop")


@pytest.fixture
async def _guarded_loop() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    _GUARD.activate()
    try:
        yield
    finally:
        _GUARD.deactivate()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for _ in range(_TASK_LOOKS):
        if not left:
            break
        _, left = await asyncio.wait(left, timeout=_PAUSE)
    assert not left, f"the test left tasks behind: {[task.get_name() for task in left]}"


def _guard() -> BlockBuster:
    guard = BlockBuster(["agent", "controlplane"])
    # An executor's lock is held only for microseconds, by its threads and by submit().
    del guard.functions["threading.Lock.acquire"]
    # The kernel answers it from memory.
    reads = guard.functions["io.TextIOWrapper.read"]
    reads.can_block_in("agent/kernel/processes.py", "_status")
    return guard


_GUARD = _guard()
"""The detector of blocking calls of all tests: to create one takes longer than to activate it."""


def ours(threads: set[threading.Thread]) -> list[str]:
    return sorted(t.name for t in threads if not any(part in t.name for part in _NOT_OURS))


def resident_bytes(pid: int) -> int:
    """The memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
