"""Cold start: POST /session to its 201, compared with the same container through Docker's API.

The container of a first session is inspected and its options are sent to Docker, with Docker's own
init instead of the agent's. Each way removes its container before the other begins.
"""

import json
import statistics
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.bench.docker_api import (
    CREATE,
    EngineConnection,
    call,
    create_and_start,
    options_of,
    remove,
    with_free_port,
)
from tests.bench.prepared import KEPT, SMALL, PreparedBench
from tests.bench.process_use import CpuMeter, in_turn
from tests.bench.report import Result
from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.support.deployment import REGION, Deployment, Steps, application, enable_tag

AT_ONCE = 40
TIMES = 3
WIDTHS = (4, 8)  # Concurrent requests to Docker: the best number depends on the machine
_WARM_UP = 2
_Times = dict[str, list[tuple[float, float]]]
"""By way and round: milliseconds to the start, and to a session's first UDP reply."""


def measure(effort: int, steps: Steps) -> list[Result]:
    """Run all rounds and return the medians."""
    rounds = max(3, effort * 30 // 100)
    at_once = max(4, effort * AT_ONCE // 100)
    with Deployment(steps, host_network_pools=["default"], start_timeout=60.0) as deployment:
        bench = _Bench(deployment)
        with steps.step(f"cold, default bridge, {rounds} rounds"):
            bridge, bridge_cpu = bench.one_by_one("bridge", rounds)
        with steps.step(f"cold, network of the host, {rounds} rounds"):
            host, host_cpu = bench.one_by_one("host", rounds)
        with steps.step(f"cold, {at_once} at once"):
            parallel = bench.at_once(at_once, max(1, effort * TIMES // 100))
        with steps.step("cold, prepared containers"):
            prepared = PreparedBench(deployment, _application("bridge"), bench.body("bridge"))
            few = prepared.measure(effort)
        with steps.step(f"cold, {at_once} at once, {KEPT} prepared"):
            kept = partial(prepared.until_kept, max(2, effort * KEPT // 100))
            taken = bench.at_once(at_once, max(1, effort * TIMES // 100), kept)
        return [
            *_figures("bridge", bridge, bridge_cpu),
            Result("cold.first_udp.ms", _median(bridge["session"], 1), "ms"),
            *_figures("host", host, host_cpu),
            Result("cold.parallel.sessions_s", parallel.sessions, "s"),
            Result("cold.parallel.engine_s", parallel.engine, "s"),
            Result("cold.parallel.engine_width", parallel.width, "at once"),
            Result("cold.parallel.ratio", parallel.engine / parallel.sessions, "x", least=0.95),
            *few,
            Result("cold.prepared.at_once_s", taken.sessions, "s"),
            Result("cold.prepared.at_once_ratio", taken.sessions / taken.engine, "x", most=0.8),
        ]


def _figures(mode: str, times: _Times, cpu: Iterable[tuple[str, list[float]]]) -> list[Result]:
    goals = {"bridge": (6, 1.03), "host": (None, 1.08)}[mode]
    session = _median(times["session"], 0)
    api = _median(times["api"], 0)
    return [
        Result(f"cold.{mode}.session_ms", session, "ms"),
        Result(f"cold.{mode}.engine_ms", api, "ms"),
        Result(f"cold.{mode}.extra_ms", session - api, "ms", most=goals[0]),
        Result(f"cold.{mode}.ratio", session / api, "x", most=goals[1]),
        *(Result(f"cold.{mode}.{name}.cpu_ms", statistics.fmean(ms), "ms") for name, ms in cpu),
    ]


def _median(rounds: list[tuple[float, float]], which: int) -> float:
    return statistics.median(each[which] for each in rounds)


class _Parallel(NamedTuple):
    """Seconds of many starts at once, by sessions and by the engine at its best concurrency."""

    sessions: float
    engine: float
    width: int


class _Bench:
    """Starts the same container by a session and by the engine's API."""

    def __init__(self, deployment: Deployment) -> None:
        self._client = deployment.client
        self._socket = deployment.engine.socket
        parts = {"controlplane": deployment.control_plane, "agent": deployment.agent}
        self._pids = {name: [part.process.pid] for name, part in parts.items()}
        self._agent_id = (deployment.agent.state_dir / "agent_id").read_text().strip()
        self._bodies: dict[str, dict[str, Any]] = {}
        both: dict[str, dict[str, object]] = {
            "bridge": {
                "ports": [{"requested": UDP_PORT, "protocol": "udp", "tls": False}],
                "reservation": SMALL,
            },
            "host": {"networkMode": "host"},
        }
        for mode, changes in both.items():
            name = _application(mode)
            self._client.post("/application", application(name, **changes)).expect(201)
            enable_tag(self._client, name, deployment.image.tag)
            with closing(EngineConnection(self._socket)) as engine:
                self._bodies[mode] = self._options_of_a_session(engine, mode)

    def one_by_one(self, mode: str, rounds: int) -> tuple[_Times, ItemsView[str, list[float]]]:
        """Alternate both ways, without other load; also return the CPU times of our programs."""
        cpu = CpuMeter(self._pids)
        body = self._bodies[mode]
        with closing(EngineConnection(self._socket)) as engine:
            ways = {
                "session": lambda: cpu.measure(lambda: self._post_session(mode), 1),
                "api": lambda: create_and_start(engine, body),
            }
            times = in_turn(_WARM_UP + rounds, ways)
        return {way: taken[_WARM_UP:] for way, taken in times.items()}, cpu.per_piece.items()

    def body(self, mode: str) -> dict[str, Any]:
        """The body that creates the container of a session without the agent."""
        return self._bodies[mode]

    def at_once(self, count: int, times: int, ready: Callable[[], object] = bool) -> _Parallel:
        """Start many sessions at once, and as many containers at several concurrencies."""
        ways: dict[str, Callable[[], float]] = {"sessions": partial(self._many_sessions, count)}
        for width in WIDTHS:
            ways[str(width)] = partial(self._many_containers, count, width)
        taken = in_turn(times, ways, ready)
        medians = {way: statistics.median(each) for way, each in taken.items()}
        ours = medians.pop("sessions")
        best = min(medians, key=medians.__getitem__)
        return _Parallel(ours, medians[best], int(best))

    def _many_sessions(self, count: int) -> float:
        """Return the seconds until the last of `count` concurrent sessions has started."""
        body = _asked("bridge")
        with ThreadPoolExecutor(count) as callers:
            begin = time.perf_counter()
            asked = [callers.submit(self._client.post, "/session", body) for _ in range(count)]
            made = [each.result().expect(201).json()["id"] for each in asked]
            taken = time.perf_counter() - begin
        with ThreadPoolExecutor(max(WIDTHS)) as callers:
            for answer in callers.map(self._client.delete_session, made):
                answer.expect(204)
        return taken

    def _many_containers(self, count: int, width: int) -> float:
        """Return the seconds in which Docker creates and starts `count`, `width` at a time."""
        body = self._bodies["bridge"]

        def run(numbers: range) -> list[str]:
            with closing(EngineConnection(self._socket)) as engine:
                made = []
                for _ in numbers:
                    made.append(call(engine, "POST", CREATE, with_free_port(body))["Id"])
                    call(engine, "POST", f"/containers/{made[-1]}/start")
                return made

        with ThreadPoolExecutor(width) as callers:
            begin = time.perf_counter()
            shares = [range(first, count, width) for first in range(width)]
            made = [container for share in callers.map(run, shares) for container in share]
            taken = time.perf_counter() - begin
            list(callers.map(self._remove, made))
        return taken

    def _remove(self, container: str) -> None:
        with closing(EngineConnection(self._socket)) as engine:
            remove(engine, container)

    def _options_of_a_session(self, engine: EngineConnection, mode: str) -> dict[str, Any]:
        """Return the create body of a session's container, read back from the engine."""
        label = f"io.tiltyard.agent={self._agent_id}"
        running = {"filters": json.dumps({"label": [label], "status": ["running"]})}
        with self._session(mode):
            (found,) = call(engine, "GET", f"/containers/json?{urlencode(running)}")
            return options_of(call(engine, "GET", f"/containers/{found['Id']}/json"))

    @contextmanager
    def _session(self, mode: str) -> Iterator[tuple[str, int]]:
        made = self._client.post("/session", _asked(mode)).expect(201).json()
        try:
            yield made["host"], made["ports"][0]["host"]
        finally:
            self._client.delete_session(made["id"]).expect(204)

    def _post_session(self, mode: str) -> tuple[float, float]:
        begin = time.perf_counter()
        with self._session(mode) as (host, port):
            started = time.perf_counter()
            udp_round_trip(host, port)
            return (started - begin) * 1000, (time.perf_counter() - begin) * 1000


def _application(mode: str) -> str:
    return f"bench-cold-{mode}"


def _asked(mode: str) -> dict[str, object]:
    args = ["--ports-from-env"] if mode == "host" else []
    return {"location": REGION, "image": _application(mode), "args": args}
