"""Allocatable resources of a host, and reservations of sessions. Pure.

A reservation is all or nothing, in one step of the event loop, so control planes can race.
"""

from collections.abc import Iterable

from agent.domain.errors import NoCapacityError
from tiltyard.contract import MEBI, NANO, Resources


class Capacity:
    """Cores, memory, GPUs (by the engine's device ids) and the number of sessions of one host."""

    def __init__(self, total: Resources, max_sessions: int, gpu_ids: Iterable[str] = ()) -> None:
        self._gpu_ids = tuple(gpu_ids)
        self._cpu_and_memory = total
        self.max_sessions = max_sessions
        self._held: dict[str, tuple[Resources, tuple[str, ...]]] = {}
        self.reserved = Resources()
        """The sum of all reservations; above `total` if the host became smaller."""

    @property
    def total(self) -> Resources:
        """Allocatable resources of the host."""
        amount = self._cpu_and_memory
        return Resources(amount.nano_cpus, amount.memory_bytes, len(self._gpu_ids))

    @property
    def sessions(self) -> int:
        """The number of sessions with a reservation."""
        return len(self._held)

    @property
    def free_sessions(self) -> int:
        """The number of further sessions that the settings allow."""
        return max(0, self.max_sessions - len(self._held))

    def set_total(self, total: Resources) -> None:
        """Set the allocatable cores and memory."""
        self._cpu_and_memory = total

    def reserve(self, internal_id: str, wanted: Resources) -> tuple[str, ...]:
        """Reserve `wanted` for a session and return its GPUs' ids; raises NoCapacityError."""
        total = self.total
        reserved = self.reserved
        checks = (
            ("sessions", 1, self.free_sessions, 1),
            ("cores", wanted.nano_cpus, total.nano_cpus - reserved.nano_cpus, NANO),
            ("MiB", wanted.memory_bytes, total.memory_bytes - reserved.memory_bytes, MEBI),
            ("GPUs", wanted.gpus, total.gpus - reserved.gpus, 1),
        )
        for resource, amount, free, unit in checks:
            if amount > free:
                raise NoCapacityError(resource, amount / unit, max(0, free) / unit)
        taken = {gpu for _, gpus in self._held.values() for gpu in gpus}
        gpus = tuple(gpu for gpu in self._gpu_ids if gpu not in taken)[: wanted.gpus]
        self.adopt(internal_id, wanted, gpus)
        return gpus

    def adopt(self, internal_id: str, held: Resources, gpu_ids: tuple[str, ...]) -> None:
        """Reserve what a running session holds, even beyond the total."""
        self.release(internal_id)
        self._held[internal_id] = (held, gpu_ids)
        self.reserved += held

    def release(self, internal_id: str) -> None:
        """Release a session's reservation, if any."""
        if internal_id in self._held:
            self.reserved -= self._held.pop(internal_id)[0]
