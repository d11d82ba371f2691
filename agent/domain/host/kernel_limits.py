"""Limits of containers as the kernel enforces them. Pure."""

import math
from dataclasses import dataclass

from tiltyard.contract import NANO, Resources

UNLIMITED = math.inf
_PERIOD_US = 100_000  # Period in which a container may use its quota of processor time
_CORES_ROUNDED_UP = 0.01  # systemd, as the driver of control groups, rounds up to whole percents
_SMALLEST = 1e-6  # What is lost in the arithmetic of cores


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What `ContainerSpec` says of cores, memory and processes, which can change later."""

    reservation: Resources
    limits: Resources
    pids: int


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Limits of a control group: bytes, bytes of swap, cores, and processes with threads.

    UNLIMITED if there is no limit, None if the kernel does not say.
    """

    memory: float | None = None
    swap: float | None = None
    cores: float | None = None
    pids: float | None = None


def differing(wanted: KernelLimits, found: KernelLimits, *, page_bytes: int) -> tuple[str, ...]:
    """Return the names of the limits that the kernel does not enforce as wanted."""
    names = []
    if found.memory is not None and not _is_whole_pages(wanted.memory, found.memory, page_bytes):
        names.append("memory")
    if wanted.swap is not None and found.swap is not None and found.swap != wanted.swap:
        names.append("swap")
    if found.cores is not None and not _is_rounded_up(wanted.cores, found.cores):
        names.append("cores")
    if wanted.pids is not None and found.pids is not None and found.pids != wanted.pids:
        names.append("pids")
    return tuple(names)


def _is_whole_pages(wanted: float | None, found: float, page_bytes: int) -> bool:
    if wanted is None or found == wanted:
        return True
    return wanted != UNLIMITED and found == wanted // page_bytes * page_bytes


def _is_rounded_up(wanted: float | None, found: float) -> bool:
    if wanted is None or found == wanted:
        return True
    return -_SMALLEST <= found - wanted <= _CORES_ROUNDED_UP + _SMALLEST


def wanted_limits(memory_bytes: int, nano_cpus: int, pids: int) -> KernelLimits:
    """Return the limits of a container that may not swap; 0 for none.

    Docker Engine rounds cores down: to whole microseconds of its period.
    """
    quota_us = nano_cpus * _PERIOD_US // NANO
    return KernelLimits(
        memory=memory_bytes or UNLIMITED,
        swap=0 if memory_bytes else None,
        cores=quota_us / _PERIOD_US if nano_cpus else UNLIMITED,
        pids=pids or UNLIMITED,
    )
