"""An engine whose calls are counted and timed, whatever engine it is.

What waits for something, for as long as that takes, is passed on as it is: the end of a process,
bound ports, streams.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from agent.domain.engine import (
    Container,
    ContainerSpec,
    Credentials,
    Engine,
    EngineInfo,
    LogPiece,
    PullProgress,
)
from agent.domain.session import NetworkMode, Port, Process
from agent.metrics.instruments import Metrics
from tiltyard.runtime.clock import Clock


class MeasuredEngine:
    """An `Engine` in front of another."""

    def __init__(self, engine: Engine, clock: Clock, metrics: Metrics) -> None:
        self._engine = engine
        self._clock = clock
        self._measured = metrics.engine_call

    async def info(self) -> EngineInfo:
        """Describe the engine."""
        with self._measured("info", self._clock):
            return await self._engine.info()

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        with self._measured("create", self._clock):
            return await self._engine.create(spec)

    async def start(self, container: str) -> Container:
        """Start a container."""
        with self._measured("start", self._clock):
            return await self._engine.start(container)

    async def inspect(self, container: str) -> Container:
        """Describe one container."""
        with self._measured("inspect", self._clock):
            return await self._engine.inspect(container)

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers of an agent."""
        with self._measured("list", self._clock):
            return await self._engine.list(agent_id)

    async def written_bytes(self, container: str) -> int:
        """Bytes that a container wrote."""
        with self._measured("written-bytes", self._clock):
            return await self._engine.written_bytes(container)

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal."""
        with self._measured("kill", self._clock):
            await self._engine.kill(container, signal)

    async def remove(self, container: str) -> None:
        """Remove a container."""
        with self._measured("remove", self._clock):
            await self._engine.remove(container)

    async def images(self) -> frozenset[str]:
        """References by digest of all images on the host."""
        with self._measured("images", self._clock):
            return await self._engine.images()

    async def image_sizes(self) -> Mapping[str, int]:
        """Bytes that each image takes, by its references by digest."""
        with self._measured("image-sizes", self._clock):
            return await self._engine.image_sizes()

    async def remove_image(self, image: str) -> None:
        """Remove a reference by digest."""
        with self._measured("remove-image", self._clock):
            await self._engine.remove_image(image)

    async def signal_process(self, process: Process, signal: str) -> None:
        """Send a signal to the process itself."""
        await self._engine.signal_process(process, signal)

    async def wait_end(self, process: Process) -> None:
        """Return when the process is gone."""
        await self._engine.wait_end(process)

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Tell whether players can reach every port of a container."""
        return await self._engine.has_bound(process, network_mode, ports)

    def logs(
        self,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        longest: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[LogPiece]]]:
        """Read stdout and stderr."""
        return self._engine.logs(container, follow=follow, tail=tail, longest=longest)

    def archive(
        self, container: str, path: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a file or folder as an uncompressed tar."""
        return self._engine.archive(container, path)

    def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PullProgress]]:
        """Pull an image by digest."""
        return self._engine.pull(image, credentials)

    def events(self, agent_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Internal ids of sessions whose container changed."""
        return self._engine.events(agent_id)

    async def close(self) -> None:
        """Let go of the engine."""
        await self._engine.close()
