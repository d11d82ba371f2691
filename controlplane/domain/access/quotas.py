"""Quotas of an account. Pure: the store counts, this module decides."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of an account; None is no limit."""

    sessions: int | None = None
    nano_cpus: int | None = None
    memory_bytes: int | None = None

    @property
    def unlimited(self) -> bool:
        """True when nothing needs to be counted."""
        return self.sessions is None and not self.limits_resources

    @property
    def limits_resources(self) -> bool:
        """True when warm pools need to be counted, too."""
        return self.nano_cpus is not None or self.memory_bytes is not None


UNLIMITED = Quota()


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of an account's live sessions and warm pools."""

    sessions: int
    nano_cpus: int
    memory_bytes: int


def exceeded_limit(quota: Quota, usage: Usage) -> str | None:
    """Return the name of the first exceeded limit, or None."""
    limits = (
        ("sessions", quota.sessions, usage.sessions),
        ("cores", quota.nano_cpus, usage.nano_cpus),
        ("memory", quota.memory_bytes, usage.memory_bytes),
    )
    for name, limit, held in limits:
        if limit is not None and held > limit:
            return name
    return None
