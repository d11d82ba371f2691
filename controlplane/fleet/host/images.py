"""The images of one host: pulls what is missing, removes what is not wanted any more.

What is wanted is compared again whenever the host reports other images, a tag is enabled or some
time has passed, so a host that joins later catches up by itself. Only images that once stood for
a tag are removed, and only where the host finds that nothing uses them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from random import Random

from controlplane.domain.contract import RegistryLogin
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentSilentError,
    StoreError,
)
from controlplane.fleet.host.pulls import Pull, PullState, next_pulls
from controlplane.fleet.host.state import HostState
from controlplane.storage.tables.tags import HostImages, TagStore
from tiltyard.contract import ErrorReason
from tiltyard.runtime.back_off import pause
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.first_completed import comes_first
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

FIRST_WAIT = 0.1
LONGEST_WAIT = 60.0
"""Seconds between tries of a pull that fails, or of removing an image that is still used."""

REVIEW_INTERVAL = 600.0
"""Seconds after which a host is compared again without another cause."""

REPORT_WAIT = 1.0
"""Seconds that a host may take to report an image that it has pulled."""

_SHOWN = (PullState.PULLING, PullState.FAILED, PullState.QUEUED)
_NOTHING = HostImages(frozenset(), frozenset())


class Images:
    """Owns the pulls and removals of one host."""

    def __init__(
        self,
        host: HostState,
        tags: TagStore,
        *,
        login_for: Callable[[str], Awaitable[RegistryLogin | None]],
        is_responsive: Callable[[], bool],
        clock: Clock,
        random: Random,
    ) -> None:
        """`login_for` returns what an image's registry asks for."""
        self._host = host
        self._tags = tags
        self._login_for = login_for
        self._is_responsive = is_responsive
        self._clock = clock
        self._random = random
        self._images = _NOTHING
        self._stale = True
        self._compared_at = 0.0
        self._waits_for_host = False
        self._present: frozenset[str] = frozenset()
        self._pulls: dict[str, Pull] = {}
        self._removals: dict[str, tuple[float, float]] = {}
        self._running = TaskOwner[None]()
        self._wake = asyncio.Event()
        self._failures = 0

    @property
    def pulls(self) -> list[Pull]:
        """The pulls that are not over: those being made first, then those that fail."""
        present = self._now_present()
        return sorted(
            (pull for pull in self._pulls.values() if pull.image not in present),
            key=lambda pull: _SHOWN.index(pull.state),
        )

    @property
    def idle(self) -> bool:
        """True when the host has all desired images, as far as was compared."""
        return not (self._stale or self._pulls or self._removals or self._running)

    def look(self) -> None:
        """Schedule a comparison of actual and desired images."""
        self._stale = True
        self._wake.set()

    def on_change(self) -> None:
        """Take note of a report of the host, or of its return."""
        present = self._now_present()
        if (present ^ self._present) - self._images.wanted:
            self.look()
        elif present != self._present or self._waits_for_host:
            self._wake.set()
        self._present = present

    async def close(self) -> None:
        """End the pulls and removals."""
        await self._running.close()

    async def run(self) -> None:
        """Pull and remove until cancelled."""
        while True:
            self._wake.clear()
            pause = self._clock.sleep(await self._round())
            await comes_first(self._wake.wait(), pause, f"images-look-{self._host.name}")

    async def _round(self) -> float:
        """Begin what can begin; return after how many seconds to look again at the latest."""
        self._waits_for_host = self._host.report is None or not self._is_responsive()
        if self._waits_for_host:
            return LONGEST_WAIT
        now = self._clock.monotonic()
        if self._stale or now - self._compared_at >= REVIEW_INTERVAL:
            try:
                await self._compare()
            except StoreError as error:
                log.warning("cannot read its desired images", error=str(error))
                self._failures += 1
                return self._pause(self._failures)
            self._failures, self._compared_at = 0, now
        self._settle(now)
        for image in next_pulls(self._pulls.values(), self._pulling(), now):
            self._begin(image, self._pull(image))
        for image, (due, _) in list(self._removals.items()):
            if due <= now and image not in self._running:
                self._begin(image, self._remove(image))
        dues = {image: pull.due for image, pull in self._pulls.items()}
        dues |= {image: due for image, (due, _) in self._removals.items()}
        later = [d - now for image, d in dues.items() if d > now and image not in self._running]
        return min([REVIEW_INTERVAL, *later])

    async def _compare(self) -> None:
        """Read what is wanted; what changes meanwhile is read again."""
        self._stale = False
        row = self._host.row
        try:
            self._images = await self._tags.images_of(
                row.region, row.node_pool, self._now_present()
            )
        except StoreError:
            self._stale = True
            raise

    def _settle(self, now: float) -> None:
        """Take note of what is missing and what is surplus, and of what is not any more."""
        present = self._now_present()
        missing = self._images.wanted - present
        for image in list(self._pulls):
            if image not in missing and image not in self._running:
                del self._pulls[image]
        for image in sorted(missing):
            self._pulls.setdefault(image, Pull(image, due=now))
        surplus = self._images.surplus & present
        self._removals = {
            image: self._removals.get(image, (now, FIRST_WAIT)) for image in sorted(surplus)
        }

    def _begin(self, image: str, work: Coroutine[None, None, None]) -> None:
        task = self._running.start(work, f"image {image} on {self._host.name}", key=image)
        task.add_done_callback(lambda _: self._wake.set())

    async def _pull(self, image: str) -> None:
        try:
            self._pulls[image] = replace(self._pulls[image], state=PullState.PULLING)
            login = await self._login_for(image)
            async with aclosing(self._host.client.pull_image(image, login)) as steps:
                async for progress in steps:
                    state = PullState.QUEUED if progress.waiting else PullState.PULLING
                    self._pulls[image] = replace(
                        self._pulls[image], state=state, progress=progress
                    )
        except (AgentRefusedError, AgentSilentError, StoreError) as error:
            self._failed(image, str(error))
            return
        log.info("image pulled", image=image)
        due = self._clock.monotonic() + REPORT_WAIT
        self._pulls[image] = replace(self._pulls[image], due=due)

    def _failed(self, image: str, cause: str) -> None:
        """Note a failure; it is a warning once for each cause."""
        pull, clock = self._pulls[image], self._clock
        level = logging.DEBUG if cause == pull.cause else logging.WARNING
        log.log(level, "pull failed", image=image, error=cause)
        failures = pull.failures + 1
        self._pulls[image] = replace(
            pull,
            state=PullState.FAILED,
            failures=failures,
            cause=cause,
            failed_ms=unix_ms(clock),
            due=clock.monotonic() + self._pause(failures),
        )

    async def _remove(self, image: str) -> None:
        try:
            await self._host.client.remove_image(image)
        except (AgentRefusedError, AgentSilentError) as error:
            level = logging.DEBUG if _is_in_use(error) else logging.WARNING
            log.log(level, "image not removed", image=image, error=str(error))
        _, wait = self._removals.get(image, (0.0, FIRST_WAIT))
        due = self._clock.monotonic() + wait
        self._removals[image] = due, min(LONGEST_WAIT, wait * 2)

    def _pulling(self) -> list[str]:
        return [image for image in self._pulls if image in self._running]

    def _now_present(self) -> frozenset[str]:
        return frozenset() if self._host.report is None else self._host.report.images

    def _pause(self, failures: int) -> float:
        """Return the wait after this number of failures, with jitter against a thundering herd."""
        random = self._random
        return pause(failures, first=FIRST_WAIT, longest=LONGEST_WAIT, random=random)


def _is_in_use(error: Exception) -> bool:
    return isinstance(error, AgentRefusedError) and error.agent_reason is ErrorReason.IMAGE_IN_USE
