"""The images of one host: pulls missing ones, removes those no longer wanted.

Actual and desired images are compared when the host reports other images, when a tag is enabled,
and periodically. The same query reads the shapes of prepared containers. An image is removed only
if it once belonged to a tag and nothing on the host uses it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from random import Random

from controlplane.domain.applications.pulls import Pull, PullState
from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError, StoreError
from controlplane.domain.hosts.contract import RegistryLogin
from controlplane.domain.hosts.host_orders import HostImages
from controlplane.fleet.host.image_room import ImageRoom
from controlplane.fleet.host.orders import Orders
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.host_orders import orders_of
from tiltyard.contract import ErrorReason
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.fair_queue import FairSlots
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner, first_completed

log = get_logger(__name__)

FIRST_WAIT = 0.1
LONGEST_WAIT = 60.0
"""Seconds between retries of a failed pull, or of the removal of an image in use."""

REVIEW_INTERVAL = 600.0  # Seconds between comparisons without another cause
REPORT_WAIT = 1.0  # Seconds in which a host reports a pulled image
MAX_PULLS = 4  # On one host; of one account half: more would only share its network and disk
MAX_SUSPECT_PULLS = 2  # Of those on one host, of one account half
MAX_REMOVALS = 2  # Concurrent removals on one host, however many surplus images it reports

_NO_SHARE = "cannot pull {image}: the images of the account fill its share of the host's disk"
_NOTHING = HostImages({}, {})


_UNSUCCESSFUL = frozenset({PullState.FAILED, PullState.NO_ROOM})


@dataclass(slots=True)
class Images:
    """Owns the pulls and removals of one host."""

    host: HostState
    room: ImageRoom
    orders: Orders
    store: Store
    _: KW_ONLY
    login_for: Callable[[str], Awaitable[RegistryLogin | None]]
    """Returns the login for an image's registry."""
    is_responsive: Callable[[], bool]
    clock: Clock
    random: Random
    listeners: list[Callable[[Pull], None]] = field(default_factory=list)  # Of refused pulls
    _images: HostImages = _NOTHING
    _stale: bool = True
    _compared_for: str = ""
    """The platform of the host at the last comparison."""
    _present: frozenset[str] = frozenset()
    _pulls: dict[str, Pull] = field(default_factory=dict)
    _removals: frozenset[str] = frozenset()
    _running: TaskOwner[None] = field(default_factory=TaskOwner)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _reported: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: FairSlots = field(default_factory=lambda: FairSlots(lambda: MAX_PULLS))
    _suspect_slots: FairSlots = field(default_factory=lambda: FairSlots(lambda: MAX_SUSPECT_PULLS))
    """For pulls likely to fail: a registry that hangs must not delay others (F43)."""
    _removal_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_REMOVALS)
    )

    @property
    def pulls(self) -> list[Pull]:
        """The unfinished pulls: active, then failed, then queued ones."""
        present = self._present_images()
        order = list(PullState)
        return sorted(
            (pull for pull in self._pulls.values() if pull.image not in present),
            key=lambda pull: order.index(pull.state),
        )

    @property
    def idle(self) -> bool:
        """True if the host had exactly the desired images at the last comparison."""
        return not (self._stale or self._pulls or self._removals)

    def state_of(self, image: str) -> PullState | None:
        """Return the state of the pull of an image, None if there is none."""
        pull = self._pulls.get(image)
        return None if pull is None else pull.state

    def failed_pull(self, image: str) -> Pull | None:
        """Return the pull of an image if its last attempt has failed."""
        pull = self._pulls.get(image)
        return None if pull is None or pull.failed is None else pull

    def look(self) -> None:
        """Schedule a comparison of actual and desired images."""
        self._stale = True
        self._wake.set()

    def retry_failed(self) -> None:
        """Retry the pulls that have failed, without waiting for the end of their back-off."""
        for pull in self._pulls.values():
            if pull.state in _UNSUCCESSFUL:
                self._begin(pull.image, self._pull(pull))

    def on_change(self) -> None:
        """Handle a report of the host, or its return."""
        present = self._present_images()
        if (present ^ self._present) - self._images.wanted.keys():
            self._stale = True
        if self._platform() != self._compared_for:
            self._stale = True
        if present != self._present or self._stale or self.room.is_outdated:
            self.room.count(self._images)
            self._wake.set()
        self._present = present
        self._reported.set()

    async def close(self) -> None:
        """Cancel the pulls and removals."""
        await self._running.close()

    async def run(self) -> None:
        """Pull and remove images until cancelled."""
        back_off = self._back_off()
        while True:
            self._wake.clear()
            try:
                if self._stale and self._can_call():
                    await self._compare()
            except StoreError as error:
                log.warning("cannot read its desired images", error=str(error))
                await back_off.wait()
                continue
            back_off.reset()
            self._adjust()
            limit = self.clock.sleep(REVIEW_INTERVAL)
            if not await first_completed(
                self._wake.wait(), limit, f"images-look-{self.host.name}"
            ):
                self._stale = True

    async def _compare(self) -> None:
        self._stale = False  # a change during the read sets it again
        self._compared_for = self._platform()
        row = self.host.row
        try:
            orders = await self.store.look(
                orders_of, row.region, row.node_pool, self._present_images()
            )
        except StoreError:
            self._stale = True
            raise
        self._images = orders.images.without_foreign(self._platform())
        self.orders.order_shapes(orders.shapes)

    def _adjust(self) -> None:
        """Start pulls of missing and removals of surplus images; cancel obsolete ones."""
        present = self._present_images()
        self.room.count(self._images)
        removals = self._removals
        missing = self._images.wanted.keys() - present
        self._removals = present & self._images.surplus.keys()
        for image in (self._pulls.keys() - missing) | (removals - self._removals):
            self._pulls.pop(image, None)
            self.room.release(image)
            if task := self._running.get(image):
                task.cancel()
        for image in sorted(missing - self._pulls.keys()):
            self._pulls[image] = Pull(image)
            self._begin(image, self._pull(self._pulls[image]))
        for image in sorted(self._removals - removals):
            self._begin(image, self._remove(image))

    def _begin(self, image: str, work: Coroutine[None, None, None]) -> None:
        self._running.start(work, f"image {image} on {self.host.name}", key=image)

    async def _pull(self, pull: Pull) -> None:
        back_off = self._back_off()
        while True:
            self.room.release(pull.image)
            account = self._account_of(pull)
            if account is None:
                text = _NO_SHARE.format(image=pull.image)
                self._note_failure(pull, text, ErrorReason.DISK_FULL)
                await back_off.wait()
                continue
            if self._is_suspect(pull):
                async with self._suspect_slots.hold(account), self._slots.hold(account):
                    if self.room.has_share(account, pull.image):
                        await self._attempt(pull, account)
            else:
                async with self._slots.hold(account):
                    if self._is_suspect(pull):
                        continue  # a pull from its registry has failed meanwhile
                    # Other pulls may have filled it meanwhile.
                    if self.room.has_share(account, pull.image):
                        await self._attempt(pull, account)
            if pull.state in _UNSUCCESSFUL:
                await back_off.wait()
            else:
                await self.clock.sleep(REPORT_WAIT)

    def _account_of(self, pull: Pull) -> str | None:
        """Return the account for which to pull an image: the least busy account with a tag of it.

        None if the images of each such account fill its share of the host's disk.
        """

        def pulls_of(account: str) -> int:
            return self._slots.held(account) + self._slots.waiting.count(account)

        accounts = sorted(self._images.wanted[pull.image])
        with_share = (each for each in accounts if self.room.has_share(each, pull.image))
        return min(with_share, key=pulls_of, default=None)

    def _is_suspect(self, pull: Pull) -> bool:
        same = (other for other in self._pulls.values() if other.registry == pull.registry)
        return any(other.failures for other in same)

    async def _attempt(self, pull: Pull, account: str) -> None:
        await self._until_responsive()
        pull.state = PullState.PULLING
        expected = self.room.reserve(account, pull.image)
        try:
            login = await self.login_for(pull.image)
            steps = self.host.client.pull_image(
                pull.image, login, account, expected_bytes=expected
            )
            async with aclosing(steps):
                async for progress in steps:
                    pull.state = PullState.QUEUED if progress.waiting else PullState.PULLING
                    pull.progress = progress
        except (AgentRefusedError, AgentUnavailableError, StoreError) as error:
            cause = str(error)
            level = logging.DEBUG if cause == pull.cause else logging.WARNING
            log.log(level, "pull failed", image=pull.image, error=cause)
            reason = error.agent_reason if isinstance(error, AgentRefusedError) else None
            self._note_failure(pull, cause, reason)
            pull.failures += 1
            self.room.release(pull.image)
        else:
            # Its size remains reserved until the host reports it.
            log.info("image pulled", image=pull.image)

    def _note_failure(self, pull: Pull, cause: str, reason: ErrorReason | None) -> None:
        pull.state = PullState.NO_ROOM if reason is ErrorReason.DISK_FULL else PullState.FAILED
        pull.cause = cause
        pull.reason = reason
        pull.failed = self.clock.time()
        for listener in self.listeners if reason is not None else ():
            listener(pull)

    async def _remove(self, image: str) -> None:
        back_off = self._back_off()
        while True:
            await self._until_responsive()
            try:
                async with self._removal_slots:
                    await self.host.client.remove_image(image)
            except (AgentRefusedError, AgentUnavailableError) as error:
                is_used = _has_reason(error, ErrorReason.IMAGE_IN_USE)
                level = logging.DEBUG if is_used else logging.WARNING
                log.log(level, "image not removed", image=image, error=str(error))
            await back_off.wait()

    def _can_call(self) -> bool:
        return self.host.report is not None and self.is_responsive()

    async def _until_responsive(self) -> None:
        while not self._can_call():
            self._reported.clear()
            await self._reported.wait()

    def _present_images(self) -> frozenset[str]:
        return frozenset() if self.host.report is None else self.host.report.images

    def _platform(self) -> str:
        return "" if self.host.report is None else self.host.report.platform

    def _back_off(self) -> BackOff:
        return BackOff(self.clock, self.random, first=FIRST_WAIT, longest=LONGEST_WAIT)


def _has_reason(error: Exception, reason: ErrorReason) -> bool:
    return isinstance(error, AgentRefusedError) and error.agent_reason is reason
