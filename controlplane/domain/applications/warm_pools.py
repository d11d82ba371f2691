"""Warm pools: the desired numbers of standbys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.tags import Tag


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Standbys of an application in a region, and their start parameters.

    The process of a claimed one gets `claim_signal`, if any. `id` is the pool's id on hosts, ""
    before it is stored.
    """

    account: str
    application: str
    location: str
    size: int
    enabled: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    claim_signal: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class WantedPool:
    """A pool, its application and the enabled tags of that, newest first.

    `revision` grows with every change of the pool. `env`, `args` and `labels` are read only for
    a pool that has a size.
    """

    pool: WarmPool
    revision: int
    application: Application
    tags: tuple[Tag, ...]

    @property
    def size(self) -> int:
        """The desired number of standbys."""
        return self.pool.size if self.pool.enabled else 0
