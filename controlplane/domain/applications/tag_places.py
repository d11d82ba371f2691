"""News of tags: hosts have pulled a tag or failed to, regions can start it. Pure.

The log of events gets only changes: a repeated report is no news.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

TagKey = tuple[str, str, str]  # Account, application, tag


class TagPlace(NamedTuple):
    """An enabled tag in one region of its application."""

    account: str
    application: str
    name: str
    digest: str
    image: str
    region: str
    node_pool: str

    @property
    def key(self) -> TagKey:
        """The account, the application and the name of the tag."""
        return self.account, self.application, self.name

    @property
    def place(self) -> tuple[str, str]:
        """The region and the node pool."""
        return self.region, self.node_pool


class WrittenState(NamedTuple):
    """What the log has of a tag in a region.

    `reasons` are those of the pulls that failed since the region lacks the image.
    """

    digest: str
    node_pool: str
    is_available: bool = False
    reasons: frozenset[str] = frozenset()


class Pulled(NamedTuple):
    """An agent's host has the image of a tag since now, or not any longer."""

    tag: TagPlace
    agent: str
    is_present: bool = True


class Available(NamedTuple):
    """A region has got its first host that can start sessions of a tag."""

    tag: TagPlace


class Failed(NamedTuple):
    """Pulls fail for a `reason` in a region that lacks the image, first on this agent's host.

    `reason` is in words for callers, "" if the disk lacks room.
    """

    tag: TagPlace
    agent: str
    reason: str


TagNews = Pulled | Available | Failed


def look_at_hosts(
    tags: Iterable[TagPlace],
    images: Mapping[str, frozenset[str]],
    places: Mapping[str, tuple[str, str]],
    written: Mapping[tuple[TagKey, str], str],
) -> list[Pulled]:
    """Return which hosts have pulled tags, and which lack images that they had.

    Args:
        tags: The tags of the images that are looked at.
        images: By agent those of these images that its host has.
        places: By agent the region and node pool of its host.
        written: By tag and agent the digest that the host has as the log says.
    """
    by_image: dict[str, list[TagPlace]] = {}
    by_key: dict[TagKey, TagPlace] = {}
    for tag in tags:
        by_image.setdefault(tag.image, []).append(tag)
        by_key[tag.key] = tag
    news = [
        Pulled(tag, agent)
        for agent, present in sorted(images.items())
        for image in sorted(present & by_image.keys())
        for tag in by_image[image]
        if tag.place == places[agent] and written.get((tag.key, agent)) != tag.digest
    ]
    for (key, agent), digest in sorted(written.items()):
        known = by_key.get(key)
        is_gone = known is not None and known.image not in images.get(agent, frozenset())
        if known is not None and is_gone and known.digest == digest:
            news.append(Pulled(known, agent, is_present=False))
    return news


def look_at_region(
    tag: TagPlace, written: WrittenState | None, *, is_there: bool, failures: Mapping[str, str]
) -> list[TagNews]:
    """Return whether a tag has become available in its region, or for what its pulls fail.

    `is_there`: a host that answers has the image. `failures` has by reason the agent of a host
    that failed to pull it.
    """
    current = written
    if current is None or (current.digest, current.node_pool) != (tag.digest, tag.node_pool):
        current = WrittenState(tag.digest, tag.node_pool)
    if is_there:
        return [] if current.is_available else [Available(tag)]
    new = failures.keys() - current.reasons
    return [Failed(tag, failures[reason], reason) for reason in sorted(new)]
