"""A session on its host: its record and its state machine. Pure.

                     ┌──────────────────────────────┐
                     │                              ▼
    created ──▶ running ──▶ restarting ──▶ ... shuttingdown ──▶ exited
       │          ▲ │           │ │                             dead
       │          └─┼───────────┘ │                               ▲
       └────────────┴─────────────┴───────────────────────────────┘

`exited` and `dead` are ended; nothing leaves them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.domain.addresses import Addressed
from agent.domain.errors import InvalidArgumentError
from agent.domain.sessions.history import Usage
from tiltyard.contract import EndReason, Protocol, SessionSpec, State
from tiltyard.ends import FailedRun, Limit, Moment, StopResult
from tiltyard.records import record

TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.RUNNING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.RUNNING: frozenset({State.RESTARTING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.RESTARTING: frozenset({State.RUNNING, State.SHUTTINGDOWN, State.EXITED, State.DEAD}),
    State.SHUTTINGDOWN: frozenset({State.EXITED, State.DEAD}),
    State.EXITED: frozenset(),
    State.DEAD: frozenset(),
}


LONGEST_TTL_SECONDS = 8760 * 3600

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Ids may name files, folders and containers."""


def checked_id(text: str, field: str = "internal_id") -> str:
    """Validate an id; raises InvalidArgumentError, which names the field."""
    if not _UUID.fullmatch(text):
        raise InvalidArgumentError(field, "it is not a lower-case UUID")
    return text


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a session.

    `inner`: in the host's network the process of a TLS port binds a second port, since the agent
    binds the first; else 0. `same`: the process binds `host` also in a network of its own, and
    `container` only names the port.
    """

    container: int
    protocol: Protocol
    host: int
    tls: bool = False
    inner: int = 0
    same: bool = False

    @property
    def own(self) -> int:
        """The port in the process's environment; it binds this one in the host's network."""
        return self.inner or self.host

    def bound(self, *, in_host: bool) -> int:
        """The port that the process binds, in the host's network or in one of its own."""
        return self.own if in_host or self.same else self.container

    @property
    def taken(self) -> tuple[int, ...]:
        """The host ports that it occupies."""
        return (self.host, self.inner) if self.inner else (self.host,)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this boot; the start time, in ticks since boot, distinguishes reused ids."""

    pid: int
    start_ticks: int


@record(frozen=True, slots=True)
class Deadline:
    """A deadline in Unix time; `boottime` (CLOCK_BOOTTIME) counts while `boot_id` is current."""

    expire_time: float
    boot_id: str
    boottime: float


@dataclass(frozen=True, slots=True)
class Drain:
    """The drain state of a host; without a deadline sessions end by themselves.

    `revision` grows with every change in the control plane's store. `ordered_time` is the deadline
    in Unix time by the clock of the program that ordered it, None if unknown.
    """

    revision: int = 0
    draining: bool = False
    deadline: Deadline | None = None
    ordered_time: float | None = None

    @property
    def drain_time(self) -> float | None:
        """The deadline in Unix time as reported."""
        if self.deadline is None:
            return None
        return self.deadline.expire_time if self.ordered_time is None else self.ordered_time


@record(frozen=True, slots=True)
class Standby:
    """The warm pool that a session was started for.

    `revision` is the `spec_revision` that it runs; `claim_signal` is sent to its process on a
    claim, empty for none. `in_doubt`: its record was lost, so it may have been claimed.
    """

    pool: str
    revision: int
    claim_signal: str = ""
    in_doubt: bool = False


@record(frozen=True, slots=True)
class Claim:
    """The claim of a standby.

    `request` is JSON, `notified` is true once the game was notified. `signal_missed`: why the
    pool's signal was not sent so far, empty if it was or if there is none.
    """

    request: str
    notified: bool = False
    signal_missed: str = ""


@record(frozen=True, slots=True)
class Session:
    """A session as its host records it; immutable.

    Times are seconds of Unix time, `restart_delay` is in seconds. `address` is the container's on
    its bridge while `process` lives, empty in the host's network; `ipv6_address` is empty also
    without IPv6. `boot_id` is the boot on which
    its container last started. `ready_time` is when all ports were bound in the last run, None
    before. `sequence` is the agent's counter at the last change. `exit_code`, `oom_killed` and
    `limits_met`, which leaves out the memory, are of the last run that ended; `run_usage` is of
    the last run, `earlier_usage` of all before it. `log_sealed` is true while the host has its
    log, `log_damaged` if a part of it could not be
    read. `kept_since` is the time of its end, a
    `Deadline` so that retention uses the same clocks. A session with `standby` belongs to its pool
    until it has a `claim`. `program` is what its containers execute, entry point and arguments:
    resolved once, empty if it was lost with the record. `prepared` is the id of the prepared
    container that it has taken, empty if its container was created for it. `stop`: how its last
    run was stopped. `image_signal`: the signal by which its image asks to be stopped, if any.
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
    limits_met: tuple[Limit, ...] = ()
    failed_runs: tuple[FailedRun, ...] = ()
    timeline: tuple[Moment, ...] = ()
    earlier_usage: Usage = field(default_factory=Usage)
    run_usage: Usage = field(default_factory=Usage)
    kept_since: Deadline | None = None
    ready_time: float | None = None
    address: str = ""
    standby: Standby | None = None
    claim: Claim | None = None
    log_damaged: bool = False
    program: tuple[str, ...] = ()
    prepared: str = ""
    stop: StopResult | None = None
    image_signal: str = ""
    ipv6_address: str = ""

    @property
    def holds_reservation(self) -> bool:
        """True while the session holds ports and capacity.

        It holds them until its end, and after its end while its process lives.
        """
        return not self.state.ended or self.process is not None

    @property
    def is_template(self) -> bool:
        """True for the description of a prepared container that no session has."""
        return self.prepared == self.internal_id

    @property
    def made_for(self) -> str:
        """The id for which its container was made: its own, or that of the prepared container."""
        return self.prepared or self.internal_id

    @property
    def is_standby(self) -> bool:
        """True for a standby without a known claim."""
        return self.standby is not None and self.claim is None

    @property
    def is_given_back(self) -> bool:
        """True for a standby not in doubt, which its host may stop."""
        return self.standby is not None and self.is_standby and not self.standby.in_doubt

    def is_started_by(self, spec: SessionSpec) -> bool:
        """Return whether this is the session that a call with `spec` starts.

        Of a session that has taken a prepared container and lost its record, only its shape is
        known.
        """
        if self.prepared and not self.program:
            return spec.shape == self.spec.shape
        return spec == self.spec

    @property
    def restarts(self) -> bool:
        """True if it restarts after a failure; a standby is replaced instead."""
        return self.spec.restart and not self.is_standby

    @property
    def stop_signal(self) -> str:
        """The name or number of the signal by which it is stopped."""
        return self.spec.stop_signal or self.image_signal or "SIGTERM"

    @property
    def failure_time(self) -> float | None:
        """When its last failed run ended, in Unix time; None before."""
        return self.failed_runs[-1].end_time if self.failed_runs else None

    @property
    def since(self) -> float:
        """When its state began, in Unix time."""
        return self.timeline[-1].time if self.timeline else self.create_time

    def to(self, state: State, *, at: float, **changes: object) -> Session:
        """A copy in `state` since `at`, with `changes`; ValueError if not in TRANSITIONS."""
        if state not in TRANSITIONS[self.state]:
            msg = f"session {self.internal_id} cannot go from {self.state.value} to {state.value}"
            raise ValueError(msg)
        timeline = self.timeline or (Moment(self.state, self.create_time),)
        return replace(self, state=state, timeline=_extended(timeline, state, at), **changes)  # type: ignore[arg-type]  # names are checked

    def with_next_run(self, process: Process | None, container: Addressed) -> Session:
        """A copy with a new run of its container, in the same state."""
        return replace(
            self,
            process=process,
            address=container.address,
            ipv6_address=container.ipv6_address,
            ready_time=None,
            earlier_usage=self.earlier_usage + self.run_usage,
            run_usage=Usage(),
        )

    def with_changes(self, **changes: object) -> Session:
        """A copy with `changes`, in the same state."""
        if "state" in changes:
            raise ValueError("change the state with `to`")
        return replace(self, **changes)  # type: ignore[arg-type]  # names are checked


def _extended(timeline: tuple[Moment, ...], state: State, at: float) -> tuple[Moment, ...]:
    """A timeline with one more state, never before the last one's time.

    Of many restarts only the first run and the last restart are kept, still a path of TRANSITIONS.
    """
    at = max(at, timeline[-1].time)
    restarted = [moment.state for moment in timeline[-2:]] == [State.RESTARTING, State.RUNNING]
    if state is State.RESTARTING and restarted:
        timeline = timeline[:-2]
    return (*timeline, Moment(state, at))
