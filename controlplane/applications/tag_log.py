"""Writes to the log of events where tags have been pulled, and for what pulls have failed.

It looks at the images that a host has or lacks since its report before, at the tags of
applications that were changed, and at refused pulls. What the log has is in the database: only
what differs from it is written, all of a moment together.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from controlplane.domain.applications.pulls import Pull
from controlplane.domain.applications.tag_places import (
    Pulled,
    TagNews,
    TagPlace,
    look_at_hosts,
    look_at_region,
)
from controlplane.domain.applications.tag_reasons import describe_pull
from controlplane.domain.errors import StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import write_when_woken
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications import tag_places
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

HOSTS_IN_A_STEP = 20  # Hosts that are looked at in one step of the event loop
PORTION = 200  # News that are written in one transaction
REST = 2.0  # Pause after a portion, as a multiple of its duration

_ImagePlace = tuple[tuple[str, str], str]
"""A region and node pool, and an image."""


@dataclass(slots=True)
class _Changed:
    """What is to be looked at."""

    images: dict[str, set[str]] = field(default_factory=dict)
    """By agent the images that its host may have got or lost."""
    first: set[str] = field(default_factory=set)
    """The agents that have reported for the first time: what they lacked before is not known."""
    applications: set[tuple[str, str]] = field(default_factory=set)
    failures: dict[_ImagePlace, dict[str, str]] = field(default_factory=dict)
    """By reason the agent of a host that refused a pull."""

    def add(self, other: "_Changed") -> None:
        """Add what another one has, which is older."""
        for agent, images in other.images.items():
            self.images.setdefault(agent, set()).update(images)
        self.first |= other.first
        self.applications |= other.applications
        for place, reasons in other.failures.items():
            self.failures[place] = reasons | self.failures.get(place, {})


class TagLog:
    """Follows the images of hosts, and their pulls."""

    def __init__(self, store: Store, fleet: Fleet, *, clock: Clock, random: Random) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._random = random
        self._seen: dict[str, frozenset[str]] = {}  # The images by agent
        self._changed = _Changed()
        self._noted: dict[_ImagePlace, set[str]] = {}
        """The reasons that were looked at, of images that their place lacks."""
        self._wake = asyncio.Event()
        fleet.subscribe(self._note_host)
        fleet.subscribe_to_failed_pulls(self._note_failure)
        store.changes.subscribe((Topic.TAG, Topic.APPLICATION), self._note_application)

    async def run(self) -> None:
        """Write until cancelled."""
        await write_when_woken(
            self._wake,
            self._write_changed,
            failed=_log_failure,
            clock=self._clock,
            random=self._random,
        )

    async def _write_changed(self) -> None:
        changed = self._changed
        self._changed = _Changed()
        try:
            await self._write(await self._news(changed))
        except StoreError:
            self._changed.add(changed)
            raise

    # ---- changes

    def _note_host(self, host: Host) -> None:
        name = host.name
        if host.state.removed:
            self._seen.pop(name, None)
        elif host.state.has_reported and host.state.report is not None:
            images = host.state.report.images
            if images is not self._seen.get(name):
                self._note_images(name, images)

    def _note_images(self, agent: str, images: frozenset[str]) -> None:
        seen = self._seen.get(agent)
        self._seen[agent] = images
        if seen is None:
            self._changed.first.add(agent)
        # A host that connects again reports the same ones: it may have been given up meanwhile.
        is_same = seen is None or seen == images
        changed = images if is_same else images ^ (seen or frozenset())
        self._changed.images.setdefault(agent, set()).update(changed)
        self._wake.set()

    def _note_failure(self, host: Host, pull: Pull) -> None:
        row = host.state.row
        place = (row.region, row.node_pool)
        reason = describe_pull(pull.reason)
        if reason in self._noted.get((place, pull.image), ()):
            return
        if self._fleet.has_image(*place, pull.image):
            return
        self._changed.failures.setdefault((place, pull.image), {})[reason] = host.name
        self._wake.set()

    def _note_application(self, change: Change) -> None:
        self._noted.clear()
        if change.key:
            account, application = change.key
            self._changed.applications.add((account, application))
        else:
            for agent, images in self._seen.items():
                self._changed.images.setdefault(agent, set()).update(images)
        self._wake.set()

    # ---- news

    async def _news(self, changed: _Changed) -> list[TagNews]:
        images = {image for _, image in changed.failures}.union(*changed.images.values())
        tags = await self._store.read(
            tag_places.tags_in_places, images, changed.applications, changed.first
        )
        if not tags:
            return []
        known = {tag.image for tag in tags}
        agents = set(changed.images)
        for tag in tags:
            if (tag.account, tag.application) in changed.applications:
                agents.update(self._fleet.agents_with(*tag.place, tag.image))
        news: list[TagNews] = []
        ordered = sorted(agents)
        for start in range(0, len(ordered), HOSTS_IN_A_STEP):
            step = ordered[start : start + HOSTS_IN_A_STEP]
            written = await self._store.read(tag_places.written_on_hosts, known, step)
            news += self._look_at_hosts(tags, step, written)
        regions = await self._store.read(tag_places.written_in_regions, known)
        for tag in tags:
            failures = self._failures_of(changed, tag)
            is_there = self._fleet.has_image(*tag.place, tag.image)
            state = regions.get((tag.key, tag.region))
            news += look_at_region(tag, state, is_there=is_there, failures=failures)
        return news

    def _look_at_hosts(
        self,
        tags: Sequence[TagPlace],
        agents: Sequence[str],
        written: dict[tuple[tuple[str, str, str], str], str],
    ) -> list[Pulled]:
        images: dict[str, frozenset[str]] = {}
        places: dict[str, tuple[str, str]] = {}
        known = frozenset(tag.image for tag in tags)
        for agent in agents:
            host = self._fleet.host(agent)
            if host is not None and agent in self._seen:
                images[agent] = known & self._seen[agent]
                places[agent] = (host.state.row.region, host.state.row.node_pool)
        reported = {key: digest for key, digest in written.items() if key[1] in images}
        return look_at_hosts(tags, images, places, reported)

    def _failures_of(self, changed: _Changed, tag: TagPlace) -> dict[str, str]:
        """Return the failures of a tag's image in its region; none while hosts are to report."""
        key = (tag.place, tag.image)
        if self._fleet.has_image(*tag.place, tag.image):
            self._noted.pop(key, None)
            return {}
        failures = changed.failures.get(key, {})
        if not failures or self._fleet.unreported.count([tag.place]):
            return {}
        self._noted.setdefault(key, set()).update(failures)
        return failures

    async def _write(self, news: Sequence[TagNews]) -> None:
        """Write in portions, which leave the writer to others in between."""
        for start in range(0, len(news), PORTION):
            began = self._clock.monotonic()
            portion = news[start : start + PORTION]
            await self._store.run(tag_places.note_news, portion, self._clock.time())
            if start + PORTION < len(news):
                await self._clock.sleep(REST * (self._clock.monotonic() - began))


def _log_failure(error: StoreError) -> None:
    log.warning("cannot write events of tags", error=str(error))
