"""All kinds of events, by their names."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType

from controlplane.domain.events import (
    accounts,
    agents,
    applications,
    fleet,
    players,
    sessions,
    webhooks,
)
from controlplane.domain.events.event import Event, Retention

_MODULES = (sessions, players, applications, accounts, webhooks, agents, fleet)


def _kinds_of(module: ModuleType) -> Iterator[type[Event]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Event) and "kind" in vars(value):
            yield value


KINDS: Mapping[str, type[Event]] = MappingProxyType(
    {event.kind: event for module in _MODULES for event in _kinds_of(module)}
)


def kinds_kept(retention: Retention) -> tuple[str, ...]:
    """Return the kinds of a class of retention."""
    return tuple(kind for kind, event in KINDS.items() if event.retention is retention)
