"""The share of a pool on each host: number and spec of standbys. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from controlplane.domain.placement import HostView, Strategy, Wanted, is_usable
from controlplane.domain.standby_shares import Offer, kept_of_older, offer_of, share
from controlplane.storage.tables.standby_orders import WantedPool
from controlplane.storage.tables.tags import Tag
from tiltyard.contract import Identity, SessionSpec


@dataclass(frozen=True, slots=True)
class PoolHost:
    """A host that may keep what it has of a pool.

    `view` is None while nothing is known of it, though it is not given up: as after a restart of
    the control plane. `present` and `ready_images` are the standbys of the pool that it has, and
    the images of those that can be claimed. `is_short`: see `Offer`.
    """

    agent: str
    view: HostView | None
    present: int = 0
    ready_images: tuple[str, ...] = ()
    is_short: bool = False

    def has(self, image: str) -> bool:
        """Return whether it has pulled an image."""
        return self.view is not None and image in self.view.host.images


@dataclass(frozen=True, slots=True)
class Planned:
    """The share of a pool on a host; without a tag it is what was ordered before."""

    size: int
    tag: Tag | None


def plan_pool(
    wanted: WantedPool,
    hosts: Sequence[PoolHost],
    held: Mapping[str, int],
    *,
    strategy: Strategy,
    max_silence: float,
    patient: bool = False,
) -> dict[str, Planned]:
    """Plan a pool over the hosts of its region and node pool, by agent.

    `held` are the shares so far. The newest tag that a host could start is what standbys run. A
    host that is still to pull it keeps its share of an older tag while `patient`, else until
    others have as many of the newest ready.
    """
    unknown = {host.agent: host for host in hosts if host.view is None}
    newest = newest_tag(wanted.tags, hosts, max_silence)
    plan = {
        agent: Planned(min(held[agent], wanted.size), None) for agent in unknown if held.get(agent)
    }
    if newest is None:
        return plan
    size = max(0, wanted.size - sum(each.size for each in plan.values()))
    fresh = [host for host in hosts if host.has(newest.image)]
    older = {
        host.agent: tag
        for host in hosts
        if not host.has(newest.image)
        and held.get(host.agent)
        and (tag := next((each for each in wanted.tags if host.has(each.image)), None))
    }
    ready = 0 if patient else sum(host.ready_images.count(newest.image) for host in fresh)
    kept = kept_of_older(size, {agent: held[agent] for agent in older}, ready)
    plan |= {agent: Planned(count, older[agent]) for agent, count in kept.items()}
    left = size - sum(kept.values()) if patient else size
    shares = _shares(wanted, newest, fresh, held, left, strategy=strategy, silence=max_silence)
    return plan | {agent: Planned(count, newest) for agent, count in shares.items()}


def standby_spec(wanted: WantedPool, tag: Tag) -> SessionSpec:
    """Make the spec of a pool's standbys; hosts give each an id of its own."""
    pool, application = wanted.pool, wanted.application
    identity = Identity(
        account=pool.account,
        session_id=pool.id,
        application=pool.application,
        tag=tag.name,
        location=pool.location,
        labels=pool.labels,
    )
    return SessionSpec(
        identity=identity,
        image=tag.image,
        args=pool.args,
        env=pool.env,
        restart=False,
        ttl=None,
        network_mode=application.network_mode,
        reservation=application.reservation,
        limits=application.limits,
        ports=application.ports,
        disk_bytes=application.disk_bytes,
    )


def fingerprint(spec: SessionSpec, claim_signal: str) -> str:
    """Give the same text for the same standbys, and another for others."""
    text = json.dumps([asdict(spec), claim_signal], sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()


def wanted_of(wanted: WantedPool, image: str) -> Wanted:
    """Say what one standby asks of its host."""
    return Wanted(image, wanted.application.reservation, wanted.application.ports)


def newest_tag(tags: Sequence[Tag], hosts: Sequence[PoolHost], max_silence: float) -> Tag | None:
    """Choose the newest tag that a host could start now; else one that a host has pulled."""
    usable = [host for host in hosts if host.view and is_usable(host.view, max_silence)]
    for among in (usable, hosts):
        for tag in tags:
            if any(host.has(tag.image) for host in among):
                return tag
    return None


def _shares(
    wanted: WantedPool,
    newest: Tag,
    fresh: Sequence[PoolHost],
    held: Mapping[str, int],
    size: int,
    *,
    strategy: Strategy,
    silence: float,
) -> dict[str, int]:
    mine = {host.agent: held[host.agent] for host in fresh if held.get(host.agent)}
    has_all = all(host.present >= mine.get(host.agent, 0) for host in fresh)
    if has_all and sum(mine.values()) == size:
        return mine  # without a look at what the hosts have room for
    each = wanted_of(wanted, newest.image)
    offers: list[Offer] = [
        offer_of(host.view, each, silence, present=host.present, is_short=host.is_short)
        for host in fresh
        if host.view is not None
    ]
    return share(size, mine, offers, strategy)
