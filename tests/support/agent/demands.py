"""Sample demands for prepared containers."""

from typing import Any

from agent.domain.kept.preparation import Demand
from tests.support.agent.samples import a_spec
from tiltyard.contract import Identity, SessionSpec

NOW = 100_000.0


def a_shape(account: str = "acme", **changes: Any) -> SessionSpec:
    return a_spec(identity=Identity(account, "", "", "", ""), **changes)


def started(ago: float = 0.0, *, wanted: int = 1, account: str = "acme", **more: Any) -> Demand:
    """A demand whose last start was a number of seconds ago."""
    return Demand(a_shape(account), NOW, last_start=NOW - ago, wanted=wanted, **more)


def ordered(*, account: str = "acme", **more: Any) -> Demand:
    """A demand of the control plane without a start."""
    return Demand(a_shape(account), NOW, ordered=True, **more)


def ids(key: str, count: int) -> tuple[str, ...]:
    """Ids of containers that wait."""
    return tuple(f"{key}-{number}" for number in range(count))
