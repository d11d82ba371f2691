import asyncio
import threading

from tests.support.tasks import let_go
from tiltyard.runtime.tasks import Threads


async def test_close_waits_for_work_whose_caller_was_cancelled() -> None:
    threads, begun, unblocked = Threads(1, "test"), threading.Event(), threading.Event()
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
