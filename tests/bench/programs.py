"""Programs that a measurement runs beside what it measures, each in a process of its own.

`python -m MODULE SETTINGS` with the settings as a JSON object. A program says that it is ready on
a line of its output, and serves until SIGTERM.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import click

from tests.support.harness import Process

_READY = "ready"


class Program:
    """One such program; `folder` is its own, and gone when it is left."""

    def __init__(self, module: str, **settings: object) -> None:
        self._module = module
        self._settings = settings
        self._stack = ExitStack()
        self.folder: Path
        self.process: Process

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltyard-bench-"))
            self.folder = Path(folder)
            settings = json.dumps({"folder": folder, **self._settings})
            log = self.folder / "output.log"
            self.process = Process(self._module, log)
            self.process.launch(
                [sys.executable, "-m", self._module, settings],
                lambda: _READY in log.read_text(errors="replace").splitlines(),
            )
            stack.callback(self.process.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


async def until_told() -> None:
    """Say that the program is ready, and serve until SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    click.echo(_READY)
    await told.wait()


def run(serve: Callable[..., Awaitable[None]]) -> None:
    """Run a program with the settings that it was called with."""
    settings: dict[str, Any] = json.loads(sys.argv[1])

    async def main() -> None:
        await serve(**settings)

    asyncio.run(main())
