"""The real first process of containers, with the agent's end of its channel."""

import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.init.binary import PATH
from agent.init.channel import REPORT, START, make_channel
from agent.init.messages import Report, Reports, Waiting, encode

PATIENCE = 60.0  # Seconds until something counts as hanging

NEW_PIDS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Makes what follows process 1 of its own namespace, as in a container; needs root."""


def children_of(pid: int) -> list[int]:
    """The process ids of the children of a process with one thread, the oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class FirstProcess:
    """A first process of a container, whatever it is; `options` are those of `Popen`."""

    def __init__(self, *command: str | Path, **options: Any) -> None:
        self.process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=options.pop("stdin", subprocess.PIPE),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **options,
        )

    @property
    def pid(self) -> int:
        """Its process id, on this side of any namespace."""
        pid = self.process.pid
        is_before = Path(f"/proc/{pid}/comm").read_text() == "unshare\n"
        return children_of(pid)[0] if is_before else pid

    @property
    def state(self) -> str:
        """The name of the process."""
        return Path(f"/proc/{self.pid}/comm").read_text().rstrip()

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def end_input(self) -> None:
        """End the standard input of the process and of its program."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def next_line(self) -> str:
        """Wait for a line of output."""
        assert self.process.stdout is not None
        _wait_readable(self.process.stdout.fileno(), PATIENCE)
        return bytes(self.process.stdout.readline()).decode().rstrip("\n")

    def output(self) -> str:
        """Wait for the end of the output, and return the rest of it."""
        assert self.process.stdout is not None
        return bytes(self.process.stdout.read()).decode()

    def exit_code(self) -> int:
        """Wait for the end of the process; negative if a signal ended it."""
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()  # as `unshare` ends, so does what it began
        self.process.wait(PATIENCE)
        for file in (self.process.stdin, self.process.stdout):
            if file is not None:
                file.close()


def docker_init(
    program: Sequence[str], before: Sequence[str] = (), **options: Any
) -> FirstProcess:
    """Run a program under `docker-init`; `before` executes that."""
    found = shutil.which("docker-init")
    assert found is not None, "there is no docker-init: install the package docker.io"
    return FirstProcess(*before, found, "-s", "--", *program, **options)


class InitProcess(FirstProcess):
    """An init that has begun to wait; `folder` for its channel is empty.

    `before`: a command that executes the init. `seen_as`: the path of the folder for the init, if
    that is another one. `without`: one of the FIFOs that is missing. `options`: those of `Popen`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        before: Sequence[str | Path] = (),
        program: Path | str = PATH,
        seen_as: Path | str | None = None,
        without: str = "",
        **options: Any,
    ) -> None:
        make_channel(folder)
        self._start = folder / START
        self._report = os.open(folder / REPORT, os.O_RDONLY | os.O_NONBLOCK)
        self._reports = Reports()
        self._pending: list[Report] = []
        if without:
            (folder / without).unlink()
        super().__init__(*before, program, seen_as or folder, **options)
        if not without:
            assert self.next_report() == Waiting()

    def next_report(self) -> Report | None:
        """Wait for the next report; None at the end of the last writer."""
        give_up = time.monotonic() + PATIENCE
        while not self._pending:
            _wait_readable(self._report, max(0.0, give_up - time.monotonic()))
            data = os.read(self._report, 4096)
            if not data:
                return None
            self._pending += self._reports.feed(data)
        return self._pending.pop(0)

    def left_reports(self) -> list[Report]:
        """Wait for all reports up to the end of the last writer."""
        return list(iter(self.next_report, None))

    def open_start(self) -> int:
        """Return a writing end for hand-overs; OSError if no process reads."""
        return os.open(self._start, os.O_WRONLY | os.O_NONBLOCK)

    def write(self, data: bytes) -> None:
        """Write all of a hand-over, or as much as is read, and close it."""
        descriptor = self.open_start()
        os.set_blocking(descriptor, True)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) or 0 :]
        except BrokenPipeError:
            pass

    def hand_over(
        self, *program: str, env: Mapping[str, str] | None = None, in_place: bool = False
    ) -> None:
        self.write(encode(program, env or {}, in_place=in_place))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        os.close(self._report)


def _wait_readable(descriptor: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(seconds * 1000):
        raise TimeoutError(f"nothing to read within {seconds:g} s")
