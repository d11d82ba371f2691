import asyncio
import gc
import itertools
import threading

import pytest

from tests.support.fake_clock import FakeClock, until_idle
from tests.support.tasks import let_go
from tiltyard.runtime.tasks import (
    FAULT_PAUSE,
    TaskOwner,
    Threads,
    contained,
    first_completed,
    run_again,
)


async def _fail(error: Exception, begin: asyncio.Event) -> None:
    await begin.wait()
    raise error


async def test_logs_a_failure_without_a_waiter(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskOwner[None](expected=OSError)
    begin = asyncio.Event()
    tasks.start(_fail(ValueError("odd"), begin), "odd one")
    tasks.start(_fail(OSError("full"), begin), "expected one")
    begin.set()
    await until_idle()
    assert len(tasks) == 0
    assert caplog.messages == ["task failed: internal error task=odd one"]


async def test_waiter_gets_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskOwner[None]()
    begin = asyncio.Event()
    begin.set()
    with pytest.raises(ValueError, match="odd"):
        await tasks.finish(_fail(ValueError("odd"), begin), "odd one")
    await until_idle()
    assert caplog.messages == []


async def test_work_outlives_a_cancelled_caller(caplog: pytest.LogCaptureFixture) -> None:
    tasks = TaskOwner[None]()
    begin = asyncio.Event()
    caller = asyncio.create_task(tasks.finish(_fail(ValueError("odd"), begin), "odd one"))
    await until_idle()
    caller.cancel()
    await until_idle()
    assert caller.cancelled()
    assert [task.get_name() for task in tasks] == ["odd one"]
    begin.set()
    await tasks.wait()
    await until_idle()
    assert caplog.messages == ["task failed: internal error task=odd one"]


async def test_second_task_of_a_key_replaces_the_first() -> None:
    tasks = TaskOwner[None]()
    never = asyncio.Event()
    first = tasks.start(_fail(ValueError(), never), "first", key="x")
    await until_idle()
    second = tasks.start(_fail(ValueError(), never), "second", key="x")
    assert set(tasks) == {first, second}
    await until_idle()
    assert first.cancelled()
    assert list(tasks) == [second]
    assert tasks.get("x") == second
    await tasks.close()
    await until_idle()
    assert second.cancelled()
    assert tasks.get("x") is None


@pytest.mark.parametrize("work_fails", [True, False])
async def test_first_completed_raises_the_first_error(*, work_fails: bool) -> None:
    begin = asyncio.Event()
    never = asyncio.Event()
    begin.set()
    works = [_fail(ValueError("odd"), begin), _fail(ValueError("late"), never)]
    work, other = works if work_fails else works[::-1]
    with pytest.raises(ValueError, match="odd"):
        await first_completed(work, other, "both")


async def test_close_waits_for_work_whose_caller_was_cancelled() -> None:
    threads = Threads(1, "test")
    begun = threading.Event()
    unblocked = threading.Event()
    done: list[str] = []

    def work(what: str) -> None:
        begun.set()
        unblocked.wait()
        done.append(what)

    caller = asyncio.create_task(threads.run(work, "it"))
    await asyncio.to_thread(begun.wait)
    await let_go(caller)
    closing = asyncio.create_task(threads.close())
    await asyncio.sleep(0)
    assert not closing.done()
    unblocked.set()
    await closing
    assert done == ["it"]


async def test_error_of_work_whose_caller_was_cancelled_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gc.collect()  # futures of earlier tests
    caplog.clear()
    threads = Threads(1, "test")
    begun = threading.Event()
    unblocked = threading.Event()

    def work() -> None:
        begun.set()
        unblocked.wait()
        raise FileNotFoundError

    caller = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait)
    await let_go(caller)
    unblocked.set()
    await until_idle()
    del caller  # which refers to its work
    gc.collect()  # asyncio logs an error that nobody has read when its future is collected
    assert caplog.messages == []
    await threads.close()


async def test_work_runs_again_after_each_unexpected_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("odd")

    task = asyncio.create_task(run_again(work, clock))
    await clock.advance(FAULT_PAUSE - 1)
    assert runs == 1
    await clock.advance(FAULT_PAUSE + 2)
    await task
    assert runs == 3
    text = f"internal error: it runs again after a pause seconds={FAULT_PAUSE}"
    assert caplog.messages == [text, text]


async def test_pause_before_work_runs_again_doubles_while_errors_follow_each_other() -> None:
    clock = FakeClock()
    runs: list[float] = []

    async def work() -> None:
        runs.append(clock.monotonic())
        if len(runs) == 4:
            await clock.sleep(FAULT_PAUSE + 1)
        if len(runs) < 6:
            raise ValueError("odd")

    task = asyncio.create_task(run_again(work, clock, first=1.0))
    await clock.advance(3 * FAULT_PAUSE)
    await task
    pauses = [after - before for before, after in itertools.pairwise(runs)]
    assert pauses == [1.0, 2.0, 4.0, FAULT_PAUSE + 2, 2.0]


def test_unexpected_error_ends_only_the_body_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with contained("cannot do it: internal error", session="s"):
        raise ValueError("odd")
    assert caplog.messages == ["cannot do it: internal error session=s"]
    assert "ValueError: odd" in caplog.text


def test_cancellation_is_not_contained(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(asyncio.CancelledError), contained("cannot do it: internal error"):
        raise asyncio.CancelledError
    assert caplog.messages == []


async def test_cancellation_ends_work_that_would_run_again() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(run_again(work, FakeClock()))
    await until_idle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
