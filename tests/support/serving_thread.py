"""A server of a test, on its own thread and event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

_PATIENCE = 30.0  # Maximum seconds in which a server starts, changes or ends


class ServingThread:
    """Serves inside its context; `_start` and `_stop` run on the server's loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name)

    async def _start(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._stop())
        finally:
            self._end()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
