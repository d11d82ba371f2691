"""The images of a host, and pulls: one per image, shared by all callers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from agent.changes.feed import Feed
from agent.domain.containers.engine import Credentials, Engine
from agent.domain.errors import (
    AgentError,
    EngineError,
    ImageInUseError,
    RegistryTimeoutError,
)
from agent.domain.references import checked_reference
from agent.images.pace import TOO_SLOW, PullPace
from agent.kernel.disks import Disks
from agent.metrics.instruments import Metrics
from agent.settings.policy import Policy
from tiltyard.images import PullProgress
from tiltyard.runtime.clock import Clock, SystemClock
from tiltyard.runtime.fair_queue import FairSlots
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

CONCURRENT_PULLS = 4
"""One account gets at most half of them. More pulls slow each other down and made engines hang."""

PULL_SECONDS = 1800.0
"""Timeout of a pull: 10 GB at 45 Mbit/s. A slow pull must not hold a slot forever."""


@dataclass(eq=False)
class Images:
    """The images on the host, as last read from the engine, and pulls in progress."""

    engine: Engine
    feed: Feed
    policy: Policy = field(default_factory=Policy)
    _: KW_ONLY
    metrics: Metrics = field(default_factory=Metrics)
    pull_timeout: float = PULL_SECONDS
    clock: Clock = field(default_factory=SystemClock)
    disks: Disks | None = None
    measure: Callable[[], Awaitable[object]] | None = None
    """Measures the disks again, on another thread."""
    here: Mapping[str, int] = field(default_factory=dict, init=False)
    """Unpacked bytes by digest reference; empty until `is_known`."""
    is_known: bool = field(default=False, init=False)
    """True once the engine's list was read."""
    pulls: dict[str, PullProgress] = field(default_factory=dict, init=False)
    _expected: dict[str, int] = field(default_factory=dict, init=False)
    """Bytes that the images of pulls in progress may take."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _tasks: TaskOwner[None] = field(default_factory=lambda: TaskOwner(AgentError), init=False)
    _slots: FairSlots = field(
        default_factory=lambda: FairSlots(lambda: CONCURRENT_PULLS), init=False
    )

    async def refresh(self) -> None:
        """Read the engine's list again; AgentError if the engine does not answer."""
        here = await self.engine.images()
        if here != self.here or not self.is_known:
            if self.measure is not None:
                await self.measure()
            self.here = here
            self.is_known = True
            self.feed.images_changed()

    async def pull(
        self,
        image: str,
        credentials: Credentials | None = None,
        account: str = "",
        *,
        expected_bytes: int = 0,
    ) -> AsyncGenerator[PullProgress]:
        """Pull an image, or join its pull, and yield progress; a pull continues without readers.

        `account` holds the slot of the pull, "" for an operator. `expected_bytes` must be free
        on the disk, and are reserved during the pull.

        Raises AgentError as listed for PullImage in agent.proto.
        """
        self.policy.check_image(checked_reference(image))
        if image in self.here:
            await self.refresh()
        if image in self.here:
            return
        task = self._tasks.get(image)
        if task is None or task.done():
            work = self._run(image, credentials, account, expected_bytes=expected_bytes)
            task = self._tasks.start(work, f"pull-{image[-12:]}", key=image)
        yielded = None
        while not task.done():
            changed = self._changed
            now = self.pulls.get(image)
            if now is yielded:
                await changed.wait()
            elif now is not None:
                yielded = now
                yield now
        await asyncio.shield(task)

    async def remove(self, image: str) -> None:
        """Remove an image, if present; ImageInUseError during a pull or with containers."""
        checked_reference(image)
        if image in self.pulls:
            raise ImageInUseError(image, "it is being pulled")
        await self.engine.remove_image(image)
        log.info("image removed", image=image)
        await self.refresh()

    async def close(self) -> None:
        """Cancel the pulls in progress."""
        await self._tasks.close()

    def _check_disks(self, expected_bytes: int = 0) -> None:
        if self.disks is not None:
            self.disks.check_images(expected_bytes)

    def _note(self, image: str, progress: PullProgress) -> None:
        self.pulls[image] = progress
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(
        self, image: str, credentials: Credentials | None, account: str, *, expected_bytes: int
    ) -> None:
        try:
            must_wait = self._slots.must_wait(account)
            if must_wait:
                log.info(
                    "pull waits for others", image=image, account=account, count=self._slots.used
                )
            self._note(image, PullProgress(waiting=must_wait))
            async with self._slots.hold(account):
                with self.metrics.pull():
                    self._check_disks(expected_bytes + sum(self._expected.values()))
                    self._expected[image] = expected_bytes
                    await self._fetch(image, credentials)
        except AgentError as error:
            log.warning("pull failed", image=image, error=str(error))
            raise
        finally:
            self._expected.pop(image, None)
            del self.pulls[image]
            self._wake()

    async def _fetch(self, image: str, credentials: Credentials | None) -> None:
        log.info("pull begins", image=image)
        self._note(image, PullProgress())
        pace = PullPace(self.clock.monotonic())
        try:
            async with asyncio.timeout(self.pull_timeout):
                async with self.engine.pull(image, credentials) as steps:
                    async for progress in steps:
                        self._note(image, progress)
                        self._check_disks()
                        if pace.is_too_slow(progress, self.clock.monotonic()):
                            raise RegistryTimeoutError(image, TOO_SLOW)
        except TimeoutError:
            cause = f"it timed out after {self.pull_timeout:g} s"
            raise RegistryTimeoutError(image, cause) from None
        await self.refresh()
        if image not in self.here:
            raise EngineError("pull", f"{image} is missing after the pull")
        log.info("image pulled", image=image)
