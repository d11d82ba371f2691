"""Quotas of an account. Pure: the store counts, this module judges."""

from dataclasses import dataclass

from controlplane.fleet.contract import Resources


@dataclass(frozen=True, slots=True)
class Quota:
    """What an account may hold at one time; None is no limit."""

    sessions: int | None = None
    nano_cpus: int | None = None
    memory_bytes: int | None = None

    @property
    def unlimited(self) -> bool:
        """True when nothing needs to be counted."""
        return self.sessions is self.nano_cpus is self.memory_bytes is None


UNLIMITED = Quota()


@dataclass(frozen=True, slots=True)
class Usage:
    """What the live sessions of an account hold."""

    sessions: int
    nano_cpus: int
    memory_bytes: int


def exceeded_limit(quota: Quota, usage: Usage, wanted: Resources) -> str | None:
    """Name the first limit that one more session of `wanted` would pass, None when it fits."""
    limits = (
        ("sessions", quota.sessions, usage.sessions + 1),
        ("cores", quota.nano_cpus, usage.nano_cpus + wanted.nano_cpus),
        ("memory", quota.memory_bytes, usage.memory_bytes + wanted.memory_bytes),
    )
    for name, limit, would_be in limits:
        if limit is not None and would_be > limit:
            return name
    return None
