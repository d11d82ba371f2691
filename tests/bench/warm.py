"""Claims of warm standbys over HTTP, compared with the minimum cost of the same steps.

The agents are real, with in-memory engines. Their capacity equals the pool, so claimed standbys
are replaced only between rounds, once stopped: on one machine, refilling would compete with the
claims for CPU.
"""

import json
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.bench import baseline
from tests.bench.load import Ask, Load, percentile, rate, run_load
from tests.bench.memory_host import MemoryHost
from tests.bench.process_use import CpuMeter, FlushMeter, in_turn
from tests.bench.report import Result
from tests.demo_game import UDP_PORT
from tests.support.api_client import ApiClient
from tests.support.deployment import (
    APPLICATION,
    REGION,
    REGISTRY_NAME,
    Deployment,
    Steps,
    application,
    enable_tag,
)
from tests.support.harness import AgentSpec, ControlPlaneProcess, wait_until

HOSTS = 2
POOL = 1000
CALLERS = 32
ROUNDS = 6
ROUNDS_OF_ONE = 2
ON_DOCKER = 20
TRACED = 4
"""Part of the pool that is claimed under strace: the control plane plans a pool that stays
incomplete for 5 s again."""
ENDS = 3  # First and last rounds to compare
_POOL = f"/warm-pool/{APPLICATION}/{REGION}"
_CLAIM = Ask("POST", "/session", 201, json.dumps({"location": REGION, "image": APPLICATION}))
_TIMEOUT = 300.0
_UNLIMITED = {"start_rate": 1e6, "start_burst": 10**6}
_PATIENT: Mapping[str, Any] = {"start_timeout": 60.0, "unresponsive_after": 60.0}
"""A late claim would continue as a cold start, for which there is no capacity."""


def measure(effort: int, steps: Steps) -> list[Result]:
    """Run all rounds and return the medians."""
    rounds = max(2, effort * ROUNDS // 100)
    alone = max(1, effort * ROUNDS_OF_ONE // 100)
    size = max(20, effort * POOL // 100)
    with Deployment(steps, **_PATIENT) as deployment:
        with steps.step("warm, real Docker"):
            on_docker = claims_on_docker(deployment, max(3, effort * ON_DOCKER // 100))
        with ExitStack() as stack:
            with steps.step(f"{HOSTS} hosts in memory, and a pool of {size}"):
                fleet = stack.enter_context(_a_fleet(deployment, size))
                least = stack.enter_context(baseline.a_baseline())
            with steps.step(f"warm, one caller, {alone} x {size} claims"):
                ones = fleet.rounds(1, least, alone)
            with steps.step(f"warm, {CALLERS} callers, {rounds} x {size} claims"):
                many = fleet.rounds(CALLERS, least, rounds)
                cpu = fleet.cpu.per_piece
            flushes: Mapping[str, float] = {}
            if shutil.which("strace"):
                with steps.step(f"warm, flushes of 3 x {size // TRACED} claims"):
                    flushes = fleet.flushes(CALLERS)
    per_claim = [sum(each) for each in zip(*cpu.values(), strict=True)]
    all_flushes = []
    if flushes:
        all_flushes.append(Result("warm.flushes_per_claim", sum(flushes.values()), "/claim"))
    return [
        Result("warm.one.p50_ms", _median(ones["claim"], 50), "ms", most=4),
        Result("warm.one.p99_ms", _median(ones["claim"], 99), "ms", most=15),
        Result("warm.one.chain_p50_ms", _median(ones["chain"], 50), "ms"),
        Result("warm.many.p50_ms", _median(many["claim"], 50), "ms"),
        Result("warm.many.p99_ms", _median(many["claim"], 99), "ms"),
        Result("warm.claims_per_s", rate(many["claim"]), "/s", least=1000),
        Result("warm.chains_per_s", rate(many["chain"]), "/s"),
        Result("warm.chain.ratio", rate(many["claim"]) / rate(many["chain"]), "x", least=0.4),
        *(Result(f"warm.{name}.cpu_ms", statistics.median(ms), "ms") for name, ms in cpu.items()),
        *(Result(f"warm.{name}.flushes", each, "/claim") for name, each in flushes.items()),
        *all_flushes,
        Result(
            "warm.flatness",
            statistics.median(per_claim[:ENDS]) / statistics.median(per_claim[-ENDS:]),
            "x",
            least=0.9,
        ),
        Result("warm.docker.p50_ms", percentile(on_docker.times, 50), "ms"),
        Result("warm.docker.most_ms", max(on_docker.times), "ms"),
    ]


class _Fleet:
    """A control plane with one pool, whose standbys are all claimed."""

    def __init__(
        self, control_plane: ControlPlaneProcess, hosts: Sequence[MemoryHost], size: int
    ) -> None:
        self._token = control_plane.tokens["default"]
        self._url = control_plane.base_url
        self._client = control_plane.client()
        self._pids = {
            "controlplane": [control_plane.process.pid],
            "hosts": [host.process.pid for host in hosts],
        }
        self.size = size
        self.cpu = CpuMeter(self._pids)  # Of the claims of the last `rounds`

    def rounds(self, callers: int, least: str, rounds: int) -> dict[str, list[Load]]:
        """Claim the whole pool, alternating with as many requests to the baseline."""
        chain = [Ask("POST", baseline.CHAIN, 201, json.dumps({"image": APPLICATION}))] * self.size
        self.cpu = CpuMeter(self._pids)
        return in_turn(
            rounds,
            {
                "claim": lambda: self._claim(callers, self.cpu, self.size),
                "chain": lambda: run_load(least, chain, callers=callers),
            },
            ready=lambda: until_standbys_ready(self._client, self.size),
        )

    def flushes(self, callers: int) -> Mapping[str, float]:
        """Return the flushes of each program per claim, as the median of three passes."""
        meter = FlushMeter(self._pids)
        for _ in range(3):
            until_standbys_ready(self._client, self.size)
            self._claim(callers, meter, self.size // TRACED)
        return {name: statistics.median(calls) for name, calls in meter.per_piece.items()}

    def _claim(self, callers: int, meter: CpuMeter, count: int) -> Load:
        """Claim standbys, then stop the sessions."""
        claims = [_CLAIM] * count
        load = meter.measure(
            lambda: run_load(self._url, claims, callers=callers, token=self._token), count
        )
        ids = [json.loads(each)["id"] for each in load.bodies]
        stops = [Ask("DELETE", f"/session/{each}", 204) for each in ids]
        run_load(self._url, stops, callers=CALLERS, token=self._token)
        return load


@contextmanager
def _a_fleet(deployment: Deployment, size: int) -> Iterator[_Fleet]:
    with ExitStack() as stack:
        hosts = [stack.enter_context(MemoryHost(max_sessions=size // HOSTS)) for _ in range(HOSTS)]
        agents = [AgentSpec(f"h{n}", host.address, REGION) for n, host in enumerate(hosts)]
        registries = {REGISTRY_NAME: deployment.registry.address}
        control_plane = stack.enter_context(
            ControlPlaneProcess(agents, registries, **_UNLIMITED, **_PATIENT)
        )
        client = control_plane.client()
        one_port = [{"requested": UDP_PORT, "protocol": "udp", "tls": False}]
        client.post("/application", application(ports=one_port)).expect(201)
        enable_tag(client, APPLICATION, deployment.image.tag)
        fleet = _Fleet(control_plane, hosts, size // HOSTS * HOSTS)
        keep_standbys(client, fleet.size)
        yield fleet


def claims_on_docker(deployment: Deployment, size: int) -> Load:
    """Claim sequentially, while the host refills the pool."""
    client = deployment.client
    keep_standbys(client, size)
    until_standbys_ready(client, size)
    control_plane = deployment.control_plane
    token = control_plane.tokens["default"]
    load = run_load(control_plane.base_url, [_CLAIM] * size, callers=1, token=token)
    drop_standbys(client)
    for reported in load.bodies:
        client.delete_session(json.loads(reported)["id"]).expect(204)
    return load


def keep_standbys(client: ApiClient, size: int) -> None:
    """Keep standbys of the application."""
    client.put(_POOL, {"size": size}).expect(204)


def drop_standbys(client: ApiClient) -> None:
    """Keep no standbys."""
    client.request("DELETE", _POOL).expect(204)


def until_standbys_ready(client: ApiClient, size: int) -> None:
    """Wait until as many standbys can be claimed."""
    wait_until(
        lambda: client.get("/warm-pool").expect(200).json()["warmPools"][0]["ready"] >= size,
        "the pool was not full",
        _TIMEOUT,
        poll=0.1,
    )


def _median(loads: Sequence[Load], per_cent: int) -> float:
    return statistics.median(percentile(load.times, per_cent) for load in loads)
