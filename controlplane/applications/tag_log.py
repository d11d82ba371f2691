"""Writes to the log of events where tags have been pulled, and why pulls have failed.

It looks at the images that a host has gained or lost since its report before, at the tags of
changed applications, and at refused pulls. The database has the state that the log describes;
only differences from this state are written, those of one moment in one transaction.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.domain.applications.pulls import Pull
from controlplane.domain.applications.tag_places import (
    Pulled,
    TagNews,
    TagPlace,
    look_at_hosts,
    look_at_region,
)
from controlplane.domain.applications.tag_reasons import describe_pull
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store, rest
from controlplane.storage.tables.applications import tag_places
from tiltyard.runtime.clock import Clock

HOSTS_IN_A_STEP = 20  # Hosts that are looked at in one step of the event loop
PORTION = 200  # News that are written in one transaction

_ImagePlace = tuple[tuple[str, str], str]
"""A region and node pool, and an image."""


class _HostImages(NamedTuple):
    """Images that a host may have gained or lost; `is_first` in its first report."""

    agent: str
    images: frozenset[str]
    is_first: bool


class _Failure(NamedTuple):
    """A pull that the host of an agent refused."""

    place: _ImagePlace
    reason: str
    agent: str


class _Application(NamedTuple):
    """An application whose tags were changed."""

    account: str
    name: str


_Note = _HostImages | _Failure | _Application


@dataclass(slots=True)
class _Changed:
    """Changes that wait to be compared with the log."""

    images: dict[str, set[str]] = field(default_factory=dict)
    """Images that each agent's host may have gained or lost."""
    first: set[str] = field(default_factory=set)
    """The agents that have reported for the first time: what they lacked before is not known."""
    applications: set[_Application] = field(default_factory=set)
    failures: dict[_ImagePlace, dict[str, str]] = field(default_factory=dict)
    """For each image and place: the reasons of refused pulls, each with one agent."""

    def add(self, note: _Note) -> None:
        """Add a note to the older ones."""
        match note:
            case _HostImages(agent, images, is_first):
                self.images.setdefault(agent, set()).update(images)
                if is_first:
                    self.first.add(agent)
            case _Failure(place, reason, agent):
                self.failures.setdefault(place, {})[reason] = agent
            case _Application():
                self.applications.add(note)


class TagLog:
    """Follows the images of hosts, and their pulls."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._seen: dict[str, frozenset[str]] = {}  # The images by agent
        self._noted: dict[_ImagePlace, set[str]] = {}
        """For each image that its place lacks: the reasons that were compared with the log."""
        self._follower = Follower("events of tags", self._write_changed, clock)
        fleet.subscribe(self._note_host)
        fleet.subscribe_to_failed_pulls(self._note_failure)
        store.changes.subscribe((Topic.TAG, Topic.APPLICATION), self._note_application)

    async def close(self) -> None:
        """Stop writing. Idempotent."""
        await self._follower.close()

    async def _write_changed(self, notes: Collection[_Note]) -> None:
        changed = _Changed()
        for note in notes:
            changed.add(note)
        await self._write(await self._news(changed))

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
        # A host that connects again reports the same ones: it may have been given up meanwhile.
        is_same = seen is None or seen == images
        changed = images if is_same else images ^ (seen or frozenset())
        self._follower.note(_HostImages(agent, changed, is_first=seen is None))

    def _note_failure(self, host: Host, pull: Pull) -> None:
        row = host.state.row
        place = (row.region, row.node_pool)
        reason = describe_pull(pull.reason)
        if reason in self._noted.get((place, pull.image), ()):
            return
        if self._fleet.has_image(*place, pull.image):
            return
        self._follower.note(_Failure((place, pull.image), reason, host.name))

    def _note_application(self, change: Change) -> None:
        self._noted.clear()
        if change.key:
            account, application = change.key
            self._follower.note(_Application(account, application))
        else:
            for agent, images in self._seen.items():
                self._follower.note(_HostImages(agent, images, is_first=False))

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
                await rest(self._clock, began)
