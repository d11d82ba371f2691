"""The ends of the first processes of a fake engine's containers."""

import asyncio

from agent.domain.containers.engine import ReportedEnd
from agent.domain.sessions.session import Process


class FakeEnds:
    """Running processes, and reports of ends that nobody has read."""

    def __init__(self) -> None:
        self._running: dict[Process, asyncio.Future[ReportedEnd | None]] = {}
        self._followed: set[Process] = set()
        self._kept: dict[Process, ReportedEnd | None] = {}

    @property
    def living(self) -> set[Process]:
        """The running processes."""
        return set(self._running)

    def begin(self, process: Process) -> None:
        self._running[process] = asyncio.get_running_loop().create_future()

    def end(self, process: Process, reported: ReportedEnd | None) -> None:
        """End a process, with the report of its init if there is one."""
        self._running.pop(process).set_result(reported)
        if process in self._followed:
            self._followed.remove(process)
        else:
            self._kept[process] = reported

    async def wait(self, process: Process, *, reads_report: bool) -> ReportedEnd | None:
        """Wait for an end; return the report of it, once, to a caller that reads it."""
        end = self._running.get(process)
        if end is None:
            return self._kept.pop(process, None) if reads_report else None
        if reads_report:
            self._followed.add(process)
        reported = await asyncio.shield(end)
        return reported if reads_report else None
