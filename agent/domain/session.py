"""A session on its host: what was asked, what is recorded, and which changes are allowed. Pure.

                     ┌──────────────────────────────┐
                     │                              ▼
    created ──▶ running ──▶ restarting ──▶ ... shuttingdown ──▶ exited
       │          ▲ │           │ │                             dead
       │          └─┼───────────┘ │                               ▲
       └────────────┴─────────────┴───────────────────────────────┘

`exited` and `dead` are ended; nothing leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.domain.history import Run, Usage
from tiltyard.contract import EndReason, Protocol, SessionSpec, State

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.RUNNING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.RUNNING: frozenset({State.RESTARTING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.RESTARTING: frozenset({State.RUNNING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.SHUTTINGDOWN: frozenset({State.EXITED, State.DEAD}),
    State.EXITED: frozenset(),
    State.DEAD: frozenset(),
}


MEBIBYTE = 1024**2
LONGEST_TTL_SECONDS = 8760 * 3600


@dataclass(frozen=True, slots=True)
class Port:
    """A port that a session has.

    `inner` is the second port that a TLS port takes in the host's network, for the process itself,
    since the agent has the first; 0 for all others.
    """

    container: int
    protocol: Protocol
    host: int
    tls: bool = False
    inner: int = 0

    @property
    def own(self) -> int:
        """The port in the process's environment, which it binds in the host's network."""
        return self.inner or self.host

    @property
    def taken(self) -> tuple[int, ...]:
        """The ports of the host that it takes."""
        return (self.host, self.inner) if self.inner else (self.host,)


@dataclass(frozen=True, slots=True)
class Process:
    """A process on this boot: its id and its start time in clock ticks since boot.

    The start time distinguishes a process from a later one with the same id.
    """

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a lifetime is over.

    `expire_time` is in seconds of Unix time; `boottime` in seconds of CLOCK_BOOTTIME and decides
    while `boot_id` is that of the running kernel.
    """

    expire_time: float
    boot_id: str
    boottime: float


@dataclass(frozen=True, slots=True)
class Drain:
    """What was asked of a host; without a deadline its sessions end when they end.

    `revision` grows with every change in the control plane's store. `ordered_time` is the
    deadline in Unix time by the clock of the program that ordered it, None where that is unknown.
    """

    revision: int = 0
    draining: bool = False
    deadline: Deadline | None = None
    ordered_time: float | None = None

    @property
    def drain_time(self) -> float | None:
        """The Unix time of the deadline as it is reported back."""
        if self.deadline is None:
            return None
        return self.deadline.expire_time if self.ordered_time is None else self.ordered_time


@dataclass(frozen=True, slots=True)
class Standby:
    """What a session began as that was started for a warm pool.

    `revision` is that of the newest change of the spec which it runs, `claim_signal` what its
    process gets once it is claimed, empty for none. `in_doubt` is one that was found without its
    record: it may have been claimed, and only its control plane knows.
    """

    pool: str
    revision: int
    claim_signal: str = ""
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """That a standby was claimed: by which `request`, in JSON.

    `notified` is true once session.json has it, and the signal was sent.
    """

    request: str
    notified: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A state, and since when the session was in it, in seconds of Unix time."""

    state: State
    time: float


@dataclass(frozen=True, slots=True)
class Session:
    """A session as its host records it; immutable, so a reader's copy never changes.

    Times are seconds of Unix time, `restart_delay` is in seconds. `address` is its container's on
    its bridge while `process` lives, empty in the host's network. `boot_id` is that of the boot
    on which its container last started. `ready_time` is when all its ports were seen bound in its
    last run, None before. `sequence` is the agent's counter at the last change.
    `exit_code` and `oom_killed` are of the last run that ended; `run_usage` is what the last run
    used, ended or not, as far as that is recorded, and `earlier_usage` what those before it did.
    `log_sealed` is true while the host has its log. `kept_since` is the moment of its end, from
    which on what is left of it is kept; as a deadline, so that the same clock decides.
    `standby` is what it began as, `claim` what made a session of it; it is its pool's until then.
    """

    internal_id: str
    spec: SessionSpec
    create_time: float
    state: State = State.CREATED
    ports: tuple[Port, ...] = ()
    gpu_ids: tuple[str, ...] = ()
    injected_env: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    container: str = ""
    process: Process | None = None
    start_time: float | None = None
    boot_id: str = ""
    deadline: Deadline | None = None
    end_time: float | None = None
    exit_code: int | None = None
    end_reason: EndReason | None = None
    stop_reason: EndReason | None = None
    restart_count: int = 0
    restart_delay: float = 0.0
    log_sealed: bool = False
    container_removed: bool = False
    detail: str = ""
    sequence: int = 0
    oom_killed: bool = False
    failed_runs: tuple[Run, ...] = ()
    timeline: tuple[Moment, ...] = ()
    earlier_usage: Usage = field(default_factory=Usage)
    run_usage: Usage = field(default_factory=Usage)
    kept_since: Deadline | None = None
    ready_time: float | None = None
    address: str = ""
    standby: Standby | None = None
    claim: Claim | None = None

    @property
    def holds_reservation(self) -> bool:
        """True while it holds ports and capacity; a dead one may still have a process."""
        return not self.state.ended or self.process is not None

    @property
    def is_standby(self) -> bool:
        """True for one without a known claim."""
        return self.standby is not None and self.claim is None

    @property
    def is_given_back(self) -> bool:
        """True for a standby that its host ends as soon as it has no use for it."""
        return self.standby is not None and self.is_standby and not self.standby.in_doubt

    @property
    def restarts(self) -> bool:
        """True when its process is started again after a failure; a standby is replaced."""
        return self.spec.restart and not self.is_standby

    @property
    def since(self) -> float:
        """When it came into its state."""
        return self.timeline[-1].time if self.timeline else self.create_time

    def to(self, state: State, *, at: float, **changes: object) -> Session:
        """A copy in `state` since `at`, with `changes`.

        ValueError when the table does not allow it.
        """
        if state not in TRANSITIONS[self.state]:
            msg = f"session {self.internal_id} cannot go from {self.state.value} to {state.value}"
            raise ValueError(msg)
        timeline = self.timeline or (Moment(self.state, self.create_time),)
        return replace(self, state=state, timeline=_extended(timeline, state, at), **changes)  # type: ignore[arg-type]  # names are checked

    def with_next_run(self, process: Process | None, address: str) -> Session:
        """A copy whose container was started again, in the same state."""
        return replace(
            self,
            process=process,
            address=address,
            ready_time=None,
            earlier_usage=self.earlier_usage + self.run_usage,
            run_usage=Usage(),
        )

    def with_changes(self, **changes: object) -> Session:
        """A copy with `changes` in the same state."""
        if "state" in changes:
            raise ValueError("a state changes by `to` alone")
        return replace(self, **changes)  # type: ignore[arg-type]  # names are checked


def _extended(timeline: tuple[Moment, ...], state: State, at: float) -> tuple[Moment, ...]:
    """A timeline with one more state; of many restarts it has the first run and the last restart.

    So it stays short, and a path of the table. A time before that of the last state, as after the
    wall clock was set back, counts as that.
    """
    at = max(at, timeline[-1].time)
    restarted = [moment.state for moment in timeline[-2:]] == [State.RESTARTING, State.RUNNING]
    if state is State.RESTARTING and restarted:
        timeline = timeline[:-2]
    return (*timeline, Moment(state, at))
