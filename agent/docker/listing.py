"""Describe all containers of an agent, even if one of them hangs the engine."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.docker.answers import container_of_listing, name_in, status_of
from agent.docker.first_process import init_state
from agent.domain.containers.engine import Container, ContainerStatus
from agent.domain.errors import ContainerGoneError, EngineError, EngineTimeoutError
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

_INSPECTS_AT_ONCE = 8  # Calls of one listing; the others stay free for starts and removals

log = get_logger(__name__)


class Listing:
    """Completes the engine's list of containers by inspecting each once per run.

    A container that cannot be inspected does not hide the others (kubernetes #94829): it is
    described by its list entry.
    """

    def __init__(self, threads: Threads, inspect: Callable[[str], Awaitable[Container]]) -> None:
        self._threads = threads
        self._inspect = inspect
        self._running: dict[str, Container] = {}

    async def described(self, entries: Sequence[Mapping[str, Any]]) -> list[Container]:
        """Describe the listed containers, except those removed since."""
        listed = {e["Id"] for e in entries if status_of(e["State"]) is ContainerStatus.RUNNING}
        known = {key: found for key, found in self._running.items() if key in listed}
        if known:
            known = await self._threads.run(_alive, known)
            names = {entry["Id"]: name_in(entry) for entry in entries}
            known = {key: replace(found, name=names[key]) for key, found in known.items()}
        slots = asyncio.Semaphore(_INSPECTS_AT_ONCE)
        found = await asyncio.gather(
            *(self._in_full(entry, slots) for entry in entries if entry["Id"] not in known)
        )
        all_found = [*known.values(), *(container for container in found if container)]
        self._running = {each.container: each for each in all_found if each.process}
        return all_found

    async def _in_full(
        self, entry: Mapping[str, Any], slots: asyncio.Semaphore
    ) -> Container | None:
        container = entry["Id"]
        async with slots:
            try:
                return await self._inspect(container)
            except ContainerGoneError:
                return None
            except (EngineTimeoutError, EngineError) as error:
                log.warning("listed without details", container=container, error=str(error))
                return container_of_listing(entry)


def _alive(known: dict[str, Container]) -> dict[str, Container]:
    """Containers whose process is the same as in the last listing, with the state of its init."""
    states = {key: init_state(found.process) for key, found in known.items() if found.process}
    return {
        key: replace(known[key], init=state) for key, state in states.items() if state is not None
    }
