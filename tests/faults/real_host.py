"""Invariants of an agent's process, with its engine and kernel."""

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker
import grpc

from agent.domain.containers.engine import LABEL_PREPARED
from agent.domain.sessions.session import Process, Session
from tests.faults import game_logs, invariants
from tests.faults.containers import (
    containers_of,
    led_to_containers,
    owner_of,
    published,
    remove_container,
)
from tests.faults.ledger import ledger
from tests.faults.records import recorded_sessions
from tests.support.harness import AgentProcess
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.agent.wire import STATES

_PATIENCE = 30.0  # Seconds in which whatever was broken has come to rest
SEAL_PATIENCE = 120.0  # Seconds in which 64 MiB of a flood are read from the engine and sealed
_STATES = {number: state for state, number in STATES.items()}

Traces = Mapping[str, frozenset[str]]


class RealHost:
    """One agent's process, its engine, and how to run a command where that engine is.

    `traces` has, kind by kind, what an engine of a test's own leaves in the kernel; an engine
    that others use too has none. `engine_ends` counts how often it ended.
    """

    def __init__(
        self,
        agent: AgentProcess,
        engine: docker.DockerClient,
        inside: Callable[..., list[str]] = lambda *command: list(command),
        traces: Callable[[], Traces] = dict,
        engine_ends: Callable[[], int] = int,
    ) -> None:
        self._agent = agent
        self._engine = engine
        self._inside = inside
        self._traces = traces
        self._before = traces()
        self._engine_ends = engine_ends
        self._ends_before = engine_ends()
        self._wrapper = agent.wrapper
        self._restarts: dict[str, int] = {}
        self._read: set[str] = set()  # The sessions whose logs were checked

    def note_restarts(self) -> None:
        """Remember each session's number of restarts, which never decreases."""
        self._restarts.update({each.internal_id: each.restart_count for each in self.sessions()})

    def sessions(self) -> list[Session]:
        """Every session that the host has recorded."""
        return recorded_sessions(self._agent.state_dir)

    def assert_survived(self) -> None:
        """Check the invariants now and after the end of all sessions, and that nothing remains."""
        if not ledger.wants_checks:
            return
        self._revive()
        self.assert_all_end()
        if self._agent.clocks_moved:  # some ended in the future, for the agent
            for container in self._containers():
                remove_container(container)
        else:
            self._restart(container_retention_hours=0, prepared=0)
        until_right(lambda: [container.name for container in self._containers()])
        until_right(self._left)
        ledger.checked.add(11)

    def assert_all_end(self) -> None:
        """End all sessions of the running agent, and check the invariants before and after."""
        with stub_of(self._agent) as stub:
            until_right(lambda: invariants.violations(self._observed(stub)))
            for session in listed(stub, live_only=True):
                stop = pb.StopSessionRequest(internal_id=session.internal_id)
                stub.StopSession(stop, timeout=_PATIENCE)
            until_right(lambda: self._wrong_after_the_end(stub), SEAL_PATIENCE)
            ended = self.sessions()
            assert invariants.doubled(ended) == []
            self._check_logs(stub, [each for each in ended if each.log_sealed])
        if not self._agent.clocks_moved:  # else the times do not say how late an end was
            ledger.late_seconds = max([ledger.late_seconds, *map(invariants.lateness, ended)])
        ledger.checked |= {*invariants.OF_A_HOST, 7, 8}

    def _check_logs(self, stub: Any, ended: Sequence[Session]) -> None:
        """Check the logs of ended sessions, each once."""
        lacks = self._engine_ends() - self._ends_before
        containers = dict(self._of_sessions(ended))
        wrong = []
        for session in [] if self._agent.doubles_lines else ended:
            who = session.internal_id
            if who in self._read:
                continue
            log = self._log(stub, session)
            if log is None:
                continue
            last = _saved_lines(containers[who], session) if who in containers else 0
            starts = 1 + session.restart_count + self._agent.started_by_others
            wrong += game_logs.log_violations(who, log, may_lack=lacks, starts=starts, last=last)
            ledger.lines_lost += game_logs.lines_lost(log, last)
        self._read = {session.internal_id for session in ended}
        assert wrong == [], wrong

    def _log(self, stub: Any, session: Session) -> bytes | None:
        """Return a sealed log; None if the retention of the test has expired."""
        request = pb.StreamLogsRequest(internal_id=session.internal_id)
        try:
            return b"".join(part.data for part in stub.StreamLogs(request, timeout=_PATIENCE))
        except grpc.RpcError as error:
            removed = error.code() is grpc.StatusCode.NOT_FOUND
            if removed and "log_retention_days" in self._agent.settings:
                return None
            raise

    def _revive(self) -> None:
        """Return the agent to its normal settings after a test."""
        odd = bool(self._agent.settings.get("failpoint")) or self._agent.wrapper != self._wrapper
        if odd or not self._agent.process.is_running:
            self._agent.wrapper = self._wrapper
            self._restart(failpoint="")

    def _restart(self, **settings: object) -> None:
        self._agent.settings |= settings
        self._agent.kill()
        self._agent.start()

    def _observed(self, stub: Any) -> invariants.Observation:
        sessions = self.sessions()
        processes = [each.process for each in sessions if each.process is not None]
        host = stub.GetHost(pb.GetHostRequest(), timeout=_PATIENCE).host
        reported = {each.internal_id: _STATES[each.state] for each in listed(stub)}
        first, last = self._port_range()
        return invariants.Observation(
            now=time.time(),
            sessions=sessions,
            containers=[_seen(who, each) for who, each in self._of_sessions(sessions)],
            prepared=[each.labels[LABEL_PREPARED] for each in self._waiting(sessions)],
            prepared_folders=self._prepared_folders(),
            living=frozenset(filter(self._lives, processes)),
            reported=reported,
            ports=2 * (last - first + 1),
            free_ports=host.free_tcp_ports + host.free_udp_ports,
            rules=self._rules(sessions),
            restarts_before=self._restarts,
            clocks_moved=self._agent.clocks_moved,
            more_late_seconds=self._agent.down_seconds + self._agent.stop_grace,
        )

    def _wrong_after_the_end(self, stub: Any) -> list[str]:
        seen = self._observed(stub)
        there = {container.internal_id for container in seen.containers}
        return invariants.violations(seen) + [
            f"{each.internal_id} is {each.state.value}, its log is sealed: {each.log_sealed}"
            for each in seen.sessions
            if not each.state.ended or (each.internal_id in there and not each.log_sealed)
        ]

    def _left(self) -> list[str]:
        spool = self._agent.state_dir / "spool"
        now = {**self._traces(), "spool": frozenset(path.name for path in spool.iterdir())}
        if self._may_have_broken_a_preparation():
            now = invariants.without_forgotten(now)
        return invariants.leftovers(self._before, now)

    def _may_have_broken_a_preparation(self) -> bool:
        """Whether the engine may have failed while it made a prepared container.

        Other containers are made only when a test starts a session.
        """
        has_failed = self._agent.engine_forgets or self._engine_ends() > self._ends_before
        return has_failed and bool(self._agent.settings["prepared"])

    def _containers(self) -> Sequence[Any]:
        return containers_of(self._agent, self._engine)

    def _of_sessions(self, sessions: Sequence[Session]) -> list[tuple[str, Any]]:
        """The containers of sessions, each with the session's internal id."""
        owners = [(owner_of(each, sessions), each) for each in self._containers()]
        return [(owner, each) for owner, each in owners if owner]

    def _waiting(self, sessions: Sequence[Session]) -> list[Any]:
        """The prepared containers that no session has."""
        return [each for each in self._containers() if not owner_of(each, sessions)]

    def _prepared_folders(self) -> frozenset[str]:
        folder = self._agent.state_dir / "prepared"
        return frozenset(path.name for path in folder.glob("*"))

    def _lives(self, process: Process) -> bool:
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        state, *fields = stat.rpartition(")")[2].split()
        # One who sees another boot time sees processes start at other ticks.
        same = self._agent.clocks_moved or int(fields[18]) == process.start_ticks
        return state not in "ZX" and same

    def _port_range(self) -> tuple[int, int]:
        first, last = str(self._agent.settings.get("port_range", "20000-30000")).split("-")
        return int(first), int(last)

    def _rules(self, sessions: Sequence[Session]) -> frozenset[invariants.Address]:
        first, last = self._port_range()
        found = led_to_containers(self._inside)
        others = self._others(sessions)
        return frozenset(each for each in found - others if first <= each[1] <= last)

    def _others(self, sessions: Sequence[Session]) -> set[invariants.Address]:
        """Return the host ports of other containers than this agent's."""
        ours = {container.id for _, container in self._of_sessions(sessions)}
        there = self._engine.containers.list(ignore_removed=True)
        return {port for each in there if each.id not in ours for port in published(each)}


@contextmanager
def stub_of(agent: AgentProcess) -> Iterator[Any]:
    """Connect to an agent."""
    with grpc.insecure_channel(agent.address) as channel:
        yield agent_pb2_grpc.AgentServiceStub(channel)


def listed(stub: Any, *, live_only: bool = False) -> list[pb.Session]:
    """All sessions that the agent reports, page by page."""
    listed: list[pb.Session] = []
    request = pb.ListSessionsRequest(live_only=live_only)
    while True:
        page = stub.ListSessions(request, timeout=_PATIENCE)
        listed += page.sessions
        if not page.next_page_token:
            return listed
        request.page_token = page.next_page_token


def _seen(internal_id: str, container: Any) -> invariants.SeenContainer:
    return invariants.SeenContainer(
        container.name,
        internal_id,
        running=container.status == "running",
        ports=published(container),
    )


def _saved_lines(container: Any, session: Session) -> int:
    """Return the number of the game's last line, which it saves at its end; 0 if it did not."""
    if session.exit_code != 0 or session.stop_reason is None:
        return 0
    try:
        chunks, _ = container.get_archive("/data/save.json")
    except docker.errors.APIError:  # it is not the demo game
        return 0
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        file = tar.extractfile("save.json")
        assert file is not None, "save.json is a file"
        saved = json.load(file)
    begin = datetime.fromtimestamp(session.start_time or 0.0, UTC)
    return int(saved["lines"]) if datetime.fromisoformat(saved["time"]) >= begin else 0


def until_right(wrong: Callable[[], list[str]], patience: float = _PATIENCE) -> None:
    """Wait until no invariant is violated; fail after a bound."""
    deadline = time.monotonic() + patience
    while found := wrong():
        assert time.monotonic() < deadline, json.dumps(found, indent=1)
        time.sleep(0.05)
