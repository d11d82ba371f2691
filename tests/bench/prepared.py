"""Starts that take a prepared container, beside `docker run` of the same image.

Every start waits until what earlier starts took has been replaced.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from agent.domain.containers.engine import LABEL_PREPARED, prepared_name
from tests.bench.docker_api import EngineConnection, call, create_and_start, docker_run
from tests.bench.load import percentile
from tests.bench.process_use import CpuMeter, in_turn, pss_of_containers
from tests.bench.report import Result
from tests.bench.warm import drop_standbys, keep_standbys, until_standbys_ready
from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.faults.real_host import stub_of
from tests.faults.records import recorded_sessions
from tests.support.deployment import APPLICATION, REGION, Deployment, application, enable_tag
from tests.support.harness import wait_until
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import shape_key

PREPARED = 40  # The setting; the only account is kept half of them
KEPT = 16
ROUNDS = 60
CROWD = 300
CROWD_ROUNDS = 20
PORTS = 10
APART_SECONDS = 0.05
STANDBYS = 2  # Of which one is claimed at a time
IDLE_SECONDS = 1.0  # Within which a preparation under way would end
SMALL = {"cpu": 0.01, "ram": 8}  # A reservation of which a host has hundreds
NAME_OF_TEN = "bench-prepared-ten"
_QUIET = ("--lines-per-second", "0.2")  # Instead of 10, which the engine relays
_AT_ONCE = 8  # Callers that start and stop a crowd
_TIMEOUT = 300.0
_POLL = 0.01


@dataclass
class _Starts:
    """Times of starts in milliseconds; `replaced`: from the 201 until another container waits."""

    session: list[float] = field(default_factory=list)
    first_udp: list[float] = field(default_factory=list)
    replaced: list[float] = field(default_factory=list)

    def p50(self) -> float:
        return statistics.median(self.session)


class PreparedBench:
    """An agent that keeps prepared containers."""

    def __init__(self, deployment: Deployment, name: str, body: dict[str, Any]) -> None:
        """`name`: an application with one port; `body` creates such a container without us."""
        self._client = deployment.client
        self._image = deployment.image.reference
        self._engine_socket = deployment.engine.socket
        self._agent = deployment.agent
        self._name = name
        self._body = body
        self._agent.settings["prepared"] = PREPARED
        self._agent.kill()
        self._agent.start()
        programs = {"controlplane": deployment.control_plane, "agent": deployment.agent}
        pids = {name: [program.process.pid] for name, program in programs.items()}
        self._until_201 = CpuMeter(pids)
        self._whole = CpuMeter(pids)
        ports = [
            {"requested": UDP_PORT + number, "protocol": "udp", "tls": False}
            for number in range(PORTS)
        ]
        ten = application(NAME_OF_TEN, ports=ports, reservation=SMALL)
        self._client.post("/application", ten).expect(201)
        enable_tag(self._client, NAME_OF_TEN, deployment.image.tag)
        self._keys = {each: self._key(each) for each in (name, NAME_OF_TEN)}

    def measure(self, effort: int) -> list[Result]:
        """Run all rounds."""
        few = max(2, effort * CROWD_ROUNDS // 100)
        one = _Starts()
        run = _Starts()
        engine: list[float] = []
        claims: list[float] = []
        start = partial(self._start, self._name, one, self._until_201)
        ways: dict[str, Callable[[], object]] = {
            "session": lambda: self._whole.measure(start, 1),
            "run": lambda: self._docker_run(run),
            "engine": lambda: engine.append(self._create_and_start()),
            "claim": lambda: claims.append(self._claim()),
        }
        self.until_kept(1)
        keep_standbys(self._client, STANDBYS)
        in_turn(max(3, effort * ROUNDS // 100), ways, ready=self._until_ready)
        drop_standbys(self._client)
        alone, ten = self._in_turn_when_idle(few, self._name, NAME_OF_TEN)
        second = self._second_starts(few)
        pss, proxies = self._pss(max(2, effort * KEPT // 100))
        most = max(3, effort * CROWD // 100)
        with self._crowd(most, args=_QUIET):
            [crowded] = self._in_turn_when_idle(few, self._name)
        with self._crowd(most):
            [among_writers] = self._in_turn_when_idle(few, self._name)
        p50 = one.p50()
        p99 = percentile(one.session, 99)
        first = statistics.median(one.first_udp)
        replaced = statistics.median(one.replaced)
        started = statistics.median(engine)
        claim_ms = statistics.median(claims)
        return [
            Result("cold.prepared.session_ms", p50, "ms"),
            Result("cold.prepared.p99_ms", p99, "ms"),
            Result("cold.prepared.p99_ratio", p99 / p50, "x", most=2),
            Result("cold.prepared.run_ms", run.p50(), "ms"),
            Result("cold.prepared.ratio", p50 / run.p50(), "x", most=0.08),
            Result("cold.prepared.claim_ms", claim_ms, "ms"),
            Result("cold.prepared.claim_ratio", p50 / claim_ms, "x", most=1.6),
            Result("cold.prepared.first_udp_ms", first, "ms"),
            Result("cold.prepared.first_udp_extra_ms", first - p50, "ms", most=3),
            Result("cold.prepared.run_first_udp_ms", statistics.median(run.first_udp), "ms"),
            Result("cold.prepared.ten_ports_ratio", ten.p50() / alone.p50(), "x", most=1.2),
            Result("cold.prepared.crowded_ratio", crowded.p50() / alone.p50(), "x", most=1.3),
            Result("cold.prepared.writers_ratio", among_writers.p50() / alone.p50(), "x"),
            Result("cold.prepared.second_ratio", statistics.median(second) / p50, "x", most=2),
            Result("cold.prepared.replaced_ms", replaced, "ms"),
            Result("cold.prepared.replaced_ratio", replaced / started, "x", most=2),
            Result("cold.prepared.pss_mb", pss, "MB", most=8 if proxies else 5),
            *_cpu("cpu_ms", self._until_201, {"agent": 10, "controlplane": 8}),
            *_cpu("whole_cpu_ms", self._whole, {}),
        ]

    def until_kept(self, count: int) -> None:
        """Wait until as many containers of the application with one port are kept.

        Starts that find none make the agent keep more.
        """
        if self._kept(self._name) < count:
            with self._crowd(count, callers=count):
                pass
        self._until_kept(self._name, count)

    def _in_turn_when_idle(self, rounds: int, *names: str) -> list[_Starts]:
        """Start sessions of these applications in turn, each on a host that has become idle.

        They are to be compared with one another alone: after a pause a start takes some
        milliseconds more than right after other work.
        """
        found = [_Starts() for _ in names]
        for _ in range(rounds):
            for name, starts in zip(names, found, strict=True):
                self._until_idle(name)
                self._start(name, starts)
        return found

    def _start(self, name: str, starts: _Starts, meter: CpuMeter | None = None) -> None:
        """Start and stop a session; `meter`: of the processor time until the 201."""
        post = partial(self._timed_post, name)
        waiting = self._waiting()
        made, ms = post() if meter is None else meter.measure(post, 1)
        started = time.perf_counter()
        try:
            udp_round_trip(made["host"], made["ports"][0]["host"])
            answered = time.perf_counter()
            # Asks the engine, since the agent's own processor time is measured.
            wait_until(lambda: self._waiting() - waiting, "it was not replaced", _TIMEOUT)
            self._until_kept(name, 1)
            replaced = time.perf_counter()
        finally:
            self._client.delete_session(made["id"]).expect(204)
        starts.session.append(ms)
        starts.first_udp.append(ms + (answered - started) * 1000)
        starts.replaced.append((replaced - started) * 1000)

    def _claim(self) -> float:
        """Milliseconds of a claim, from its request to its 201 as of a start."""
        made, ms = self._timed_post(APPLICATION)
        self._client.delete_session(made["id"]).expect(204)
        return ms

    def _second_starts(self, rounds: int) -> list[float]:
        """Milliseconds of starts that begin while another has begun 50 ms before."""
        found = []
        for _ in range(rounds):
            self.until_kept(2)
            with ThreadPoolExecutor(1) as caller:
                first = caller.submit(self._post, self._name)
                time.sleep(APART_SECONDS)
                second, ms = self._timed_post(self._name)
                found.append(ms)
            for each in (first.result(), second):
                self._client.delete_session(each["id"]).expect(204)
        return found

    def _docker_run(self, starts: _Starts) -> None:
        started, answered = docker_run(self._engine_socket, self._image)
        starts.session.append(started)
        starts.first_udp.append(answered)

    def _create_and_start(self) -> float:
        with closing(EngineConnection(self._engine_socket)) as engine:
            return create_and_start(engine, self._body)[0]

    @contextmanager
    def _crowd(
        self, count: int, callers: int = _AT_ONCE, args: Sequence[str] = ()
    ) -> Iterator[None]:
        """Have this number of sessions more on the host, whose games have these arguments."""
        with ThreadPoolExecutor(callers) as starting:
            made = list(starting.map(partial(self._post, args=args), [self._name] * count))
        try:
            yield
        finally:
            with ThreadPoolExecutor(_AT_ONCE) as stopping:
                for answer in stopping.map(self._client.delete_session, [m["id"] for m in made]):
                    answer.expect(204)

    def _can_start(self, name: str) -> bool:
        answer = self._client.post("/session", {"location": REGION, "image": name})
        if answer.status == HTTPStatus.CREATED:
            self._client.delete_session(answer.json()["id"]).expect(204)
        return answer.status == HTTPStatus.CREATED

    def _post(self, name: str, args: Sequence[str] = ()) -> Any:
        return self._timed_post(name, args)[0]

    def _timed_post(self, name: str, args: Sequence[str] = ()) -> tuple[Any, float]:
        """Start a session; return it, and the milliseconds until its 201."""
        body = {"location": REGION, "image": name, "args": list(args)}
        begin = time.perf_counter()
        answer = self._client.post("/session", body)
        taken = time.perf_counter() - begin
        return answer.expect(201).json(), taken * 1000

    def _until_kept(self, name: str, count: int) -> None:
        """Wait until this number of containers of an application are kept."""
        what = f"{count} prepared containers of {name} were not kept"
        wait_until(lambda: self._kept(name) >= count, what, _TIMEOUT, poll=_POLL)

    def _until_ready(self) -> None:
        """Wait until a container of the application with one port, and all standbys are kept."""
        until_standbys_ready(self._client, STANDBYS)
        self._until_kept(self._name, 1)

    def _until_idle(self, name: str) -> None:
        """Wait until one of an application is kept and the engine prepares no others."""
        self._until_kept(name, 1)
        before: set[str] | None = None
        while before != (waiting := self._waiting()):
            before = waiting
            time.sleep(IDLE_SECONDS)

    def _kept(self, name: str) -> int:
        """The number of containers of an application that the agent keeps."""
        with stub_of(self._agent) as stub:
            host = stub.GetHost(pb.GetHostRequest(), timeout=_TIMEOUT).host
        return sum(shape.kept for shape in host.prepared if shape.key == self._keys[name])

    def _waiting(self) -> set[str]:
        """The ids of the prepared containers that no session has."""
        filters = {"label": [LABEL_PREPARED], "name": [prepared_name("")], "status": ["running"]}
        with closing(EngineConnection(self._engine_socket)) as engine:
            query = urlencode({"filters": json.dumps(filters)})
            return {each["Id"] for each in call(engine, "GET", f"/containers/json?{query}")}

    def _key(self, name: str) -> str:
        """Start a session of an application; return the key of its shape."""
        wait_until(lambda: self._can_start(name), "no session could be started", _TIMEOUT)
        for session in recorded_sessions(self._agent.state_dir):
            shape = session.spec.shape
            if session.spec.identity.application == name and shape is not None:
                return shape_key(shape)
        raise RuntimeError(f"no session of {name} is recorded")

    def _pss(self, count: int) -> tuple[float, bool]:
        """MB of one of `count` prepared containers; whether processes relay its ports."""
        self.until_kept(count)
        with closing(EngineConnection(self._engine_socket)) as engine:
            paths = [f"/containers/{each}/json" for each in self._waiting()]
            all_found = [call(engine, "GET", path) for path in paths]
        found = [each for each in all_found if len(each["HostConfig"]["PortBindings"] or {}) == 1]
        return pss_of_containers(found)


def _cpu(name: str, meter: CpuMeter, goals: dict[str, float]) -> list[Result]:
    found = []
    for program, ms in meter.per_piece.items():
        figure = f"cold.prepared.{program}.{name}"
        found.append(Result(figure, statistics.fmean(ms), "ms", most=goals.get(program)))
    return found
