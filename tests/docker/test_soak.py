"""A soak: random starts, claims, stops and kills for half an hour, after which nothing has grown.

One host has a real engine. The other has an engine in memory, so that it has hundreds of sessions,
and is not killed, since they would end with it. After each round of random calls all sessions are
ended, the invariants are checked and the programs are measured.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest

from tests.bench.memory_host import MemoryHost
from tests.bench.process_use import rss_mb
from tests.docker.random_calls import CALLERS, RandomCalls, Side
from tests.docker.remote_hosts import Fleet, a_fleet, remote_machines
from tests.docker.stack import eventually
from tests.faults.callers import assert_durable
from tests.faults.containers import led_to_containers
from tests.faults.plugin import Figure
from tests.faults.real_host import listed, stub_of, until_right
from tests.faults.records import recorded_sessions
from tests.faults.soak import PLOT, Held, Sample, compared, growth, medians, plot
from tests.support import harness
from tests.support.deployment import APPLICATION, REGION, application, enable_tag
from tests.support.private_engine import PrivateEngine
from tiltyard.agent.v1 import agent_pb2 as pb

MINUTES = 30  # Of the long form; the short one is a round
CALLS = 1000  # Random ones in a round, after its first starts
MOST_KILLS = 6
MEMORY = "memory"  # The name of the host in memory and of its region
LONG = 90.0  # Seconds for waits that depend on hundreds of sessions
RETENTION = {"container_retention_hours": 0, "log_retention_days": 0.002}
"""The real host keeps logs for 3 minutes: enough to check them, without growing disks."""
NO_RETENTION = {**RETENTION, "log_retention_days": 0}
SETTINGS: Mapping[str, Any] = {
    "regions": [REGION, MEMORY],
    "start_rate": 1e6,
    "start_burst": 10**6,
    "start_timeout": 10.0,
    "unresponsive_after": 6.0,
}


class Soak:
    """Both hosts, their control plane, and what callers were answered."""

    def __init__(self, fleet: Fleet, memory: MemoryHost, chance: Random) -> None:
        [self.real] = fleet.hosts.values()
        self.fleet = fleet
        self.memory = memory
        self._chance = chance
        sides = (Side("default", REGION, 20, 4), Side("other", MEMORY, 500, 20))
        self.calls = RandomCalls(fleet.control_plane, sides, chance)
        self.kills: Counter[str] = Counter()
        self.claims = 0
        self.forgotten = Counter(ports=0, links=0, rules=0)  # By killed engines
        self._before = self.real.machine.traces()
        self.most_live = dict.fromkeys((side.region for side in sides), 0)
        self._claimed: set[str] = set()  # Sessions recorded after the previous round

    def prepare(self) -> None:
        """Make the applications and quotas of both accounts; `fleet` has the first application."""
        other = self.fleet.control_plane.client("other")
        other.post("/application", application(regions=[MEMORY])).expect(201)
        enable_tag(other, APPLICATION, "v1", region=MEMORY)
        for side in self.calls.sides:
            quota = {"quota": {"sessions": side.most}}
            operator = self.fleet.control_plane.operator
            operator.put(f"/operator/account/{side.account}", quota).expect(204)

    def round(self) -> None:
        """Start many sessions, then call at random, with kills; end all and check everything."""
        chance = self._chance
        self.calls.forget()
        for side in self.calls.sides:
            self.calls.client(side).put(side.pool, {"size": side.standbys}).expect(204)
        with self.calls.under_way() as submit:
            first = [side for side in self.calls.sides for _ in range(side.most)]
            for side in chance.sample(first, len(first)):
                submit(side, "begin")
        for side in self.calls.sides:
            live = len(self.calls.live(side))
            self.most_live[side.region] = max(self.most_live[side.region], live)
        kills = set(chance.sample(range(CALLS), chance.randint(0, MOST_KILLS)))
        with self.calls.under_way() as submit:
            for number in range(CALLS):
                submit(chance.choice(self.calls.sides), chance.choice(("start", "stop", "read")))
                if number in kills:
                    self._kill()
        self._end()

    def _kill(self) -> None:
        """Kill one or two programs while calls are under way, and start them in any order."""
        programs: dict[str, harness.AgentProcess | harness.ControlPlaneProcess | PrivateEngine] = {
            "agent": self.real,
            "control plane": self.fleet.control_plane,
            "engine": self.real.machine.engine,
        }
        chosen = self._chance.sample(sorted(programs), self._chance.choice((1, 1, 2)))
        self.kills.update(chosen)
        for name in chosen:
            programs[name].kill()
        self._chance.shuffle(chosen)
        for name in chosen:
            programs[name].start()
        self._until_ready()

    def _until_ready(self) -> None:
        self.fleet.until_ready()
        eventually(lambda: self.fleet.operator.is_ready(MEMORY), f"{MEMORY} is ready")

    def _end(self) -> None:
        """Check that what callers know is true, end all sessions, and check what hosts hold."""
        for side in self.calls.sides:
            self.calls.client(side).put(side.pool, {"size": 0}).expect(204)
        self._until_ready()
        self._count_claims()
        until_right(self.calls.mistakes)
        self.fleet.everything_runs_once()
        for side in self.calls.sides:
            client = self.calls.client(side)
            assert_durable(client, side.account, self.fleet.control_plane.made[side.account])
            with ThreadPoolExecutor(CALLERS) as callers:
                list(callers.map(client.delete_session, self.calls.live(side)))
            harness.wait_until(lambda side=side: not self.calls.live(side), "all have ended", LONG)  # type: ignore[misc]
        with stub_of(self.memory) as stub:
            harness.wait_until(lambda: not listed(stub), "no session is kept", LONG)
            host = stub.GetHost(pb.GetHostRequest()).host
            assert host.free_tcp_ports == 10001, "I2: ports are held"
            assert host.free_udp_ports == 10001, "I2: ports are held"
        self._clean_up_after_kills()
        self.real.watched.assert_all_end()
        assert self.calls.wrong == []

    def _clean_up_after_kills(self) -> None:
        """Remove and count what a killed engine has forgotten, once it has no container.

        A container's endpoint may be removed without the rule and the proxy for its ports, until
        the engine starts again; the proxy keeps agents from using the port. Links and rules of a
        network that was being set up are left, too.
        """
        machine = self.real.machine
        engine = machine.engine
        containers = machine.client.containers
        harness.wait_until(lambda: not containers.list(all=True), "no container is left", LONG)
        if blocked := led_to_containers(engine.network.inside):
            listening = machine.run("ss", "-Htuln")
            assert [port for _, port in blocked if f":{port} " not in listening] == []
            engine.stop()
            engine.start()
            self._until_ready()
        rules = machine.traces()["rules"] - self._before["rules"]
        for rule in rules:
            machine.run("iptables", "-t", "nat", "-D", *rule.split()[1:])
        pairs = 0
        while links := machine.traces()["links"] - self._before["links"]:
            machine.run("ip", "link", "delete", min(links))  # and its peer
            pairs += 1
        self.forgotten.update(ports=len(blocked), links=pairs, rules=len(rules))
        assert "engine" in self.kills or not self.forgotten.total(), "I11: something is left"

    def _count_claims(self) -> None:
        recorded = [
            *recorded_sessions(self.real.state_dir),
            *recorded_sessions(self.memory.state_dir),
        ]
        claimed = {each.internal_id for each in recorded if each.claim}
        self.claims += len(claimed - self._claimed)
        self._claimed = claimed

    def held(self) -> dict[str, Held]:
        """What the programs hold, once two looks at their descriptors and files agree."""
        programs: dict[str, harness.AgentProcess | harness.ControlPlaneProcess] = {
            "control plane": self.fleet.control_plane,
            "agent": self.real,
            "agent in memory": self.memory,
        }
        looks: list[dict[str, Held]] = []

        def at_rest() -> bool:
            looks.append({name: held_by(each) for name, each in programs.items()})
            before = looks[-2] if looks[1:] else {}
            return all(
                name in before and each[1:] == before[name][1:] for name, each in looks[-1].items()
            )

        harness.wait_until(at_rest, "the programs are at rest", poll=0.2)
        return looks[-1]


def held_by(part: harness.AgentProcess | harness.ControlPlaneProcess) -> Held:
    """What a program holds now."""
    of_ended = {part.state_dir / "sessions", part.state_dir / "tombstones"}
    files = [path for path in part.state_dir.rglob("*") if not of_ended & {*path.parents}]
    descriptors = list(Path(f"/proc/{part.process.pid}/fd").iterdir())
    return Held(rss_mb(part.process.pid), len(descriptors), sum(map(Path.is_file, files)))


@contextmanager
def a_soak(chance: Random) -> Iterator[Soak]:
    """Both hosts, enrolled; all invariants are checked at the end."""
    with (
        harness.Registry() as registry,
        remote_machines(registry, 1) as (machines, address),
        MemoryHost(
            rpc_listen=f"127.0.0.1:{harness.free_port()}", start_slots=16, **NO_RETENTION
        ) as memory,
        a_fleet(machines, address, agent=RETENTION, **SETTINGS) as fleet,
    ):
        fleet.operator.enrol(memory, MEMORY, "--region", MEMORY)
        soak = Soak(fleet, memory, chance)
        soak.prepare()
        yield soak


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(0)  # HOURS=24; every wait has its own
def test_f53_starts_stops_and_kills_at_random_leave_nothing(
    chance: Random, figure: Figure, pytestconfig: pytest.Config
) -> None:
    is_long = pytestconfig.getoption("long")
    minutes = pytestconfig.getoption("minutes") or (MINUTES if is_long else 0)
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.unlink(missing_ok=True)
    samples: list[Sample] = []
    with a_soak(chance) as soak:
        begin = time.monotonic()
        while not samples or samples[-1].minutes < minutes:
            soak.round()
            samples.append(Sample((time.monotonic() - begin) / 60, soak.held()))
            PLOT.write_text(plot(samples))
            counts = {**soak.calls.answers, **soak.kills, **soak.forgotten}
            click.echo(f"{samples[-1].minutes:.1f} minutes: {counts}, {samples[-1].held}")
    figure("minutes", f"{samples[-1].minutes:.0f}")
    figure("sessions ended after each of these rounds", len(samples))
    figure("live at most", " and ".join(map(str, soak.most_live.values())))
    for name, count in sorted([*soak.calls.answers.items(), ("claims", soak.claims)]):
        figure(name, count)
    for name, count in sorted(soak.kills.items()):
        figure(f"kills of the {name}", count)
    for name, count in soak.forgotten.items():
        figure(f"{name} that killed engines forgot", count)
    first, last = compared(samples)
    for name in samples[0].held:
        before = medians(first, name)
        after = medians(last, name)
        figure(
            f"{name}, first and last fifth",
            f"{before.memory:.0f} and {after.memory:.0f} MB,"
            f" {before.descriptors:g} and {after.descriptors:g} descriptors,"
            f" {before.files:g} and {after.files:g} files",
        )
    assert growth(samples) == []
