"""Types of both programs that describe the runs of a session: their ports and their ends."""

from dataclasses import dataclass
from enum import StrEnum, auto

from tiltyard.contract import Protocol, State


class Limit(StrEnum):
    """A limit of a session, but for the one of its memory: `oom_killed` is about that."""

    PIDS = auto()
    DISK = auto()
    SHM = auto()


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A failed run, before a restart after `delay` seconds; times are Unix time.

    `limits_met`: limits that it met, other than the one of memory.
    """

    start_time: float | None
    end_time: float
    exit_code: int | None
    oom_killed: bool
    delay: float
    limits_met: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of stopping a run.

    `signal`: its name or number. `delivered`: whether a process received it; None if only the
    engine was asked to send it. `forced`: SIGKILL was needed. `killed`: names of what was left.
    """

    signal: str
    delivered: bool | None = None
    forced: bool = False
    killed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """A state and the Unix time at which it began."""

    state: State
    time: float


@dataclass(frozen=True, slots=True)
class UnboundPort:
    """A declared port that its session's processes have not bound where players can reach it.

    `own` is the port that they have to bind. `loopback`: they have bound it on loopback only.
    """

    protocol: Protocol
    container: int
    own: int
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class BoundPort:
    """A port that processes of a session have bound."""

    protocol: Protocol
    port: int


@dataclass(frozen=True, slots=True)
class PortBindings:
    """The declared ports of a session that nobody can reach, and others that it has bound."""

    unbound: tuple[UnboundPort, ...]
    others: tuple[BoundPort, ...] = ()
