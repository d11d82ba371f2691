"""Reachability from sessions with the firewall, in a namespace apart from the machine's rules."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from agent.network.firewall import Firewall
from agent.network.firewall_rules import FORWARD_CHAIN, INPUT_CHAIN
from agent.network.firewall_watch import FirewallWatch
from agent.settings.model import load_config
from tests.docker.machine import FIRST, Agent, Machine, Player, a_machine, port_of
from tests.docker.stack import eventually
from tests.support.fake_clock import FakeClock
from tests.support.harness import ROOT, running
from tests.support.private_engine import PrivateEngine
from tests.support.private_network import PrivateNetwork, run
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import Protocol

SERVICE = 9100  # A port of the host itself, such as that of a node exporter
METADATA = ("169.254.169.254", "fd00:ec2::254")
ELSEWHERE = ("203.0.113.9", "2001:db8:9::9")
MANAGEMENT = ("10.9.0.9", "2001:db8:a::9")
RESOLVER = ("10.9.0.53", "2001:db8:a::53")
SESSIONS6 = "2001:db8:20::/64"

SERVE = """
import socket, sys, threading
def echo(sock):
    while True:
        data, asked, _, sender = sock.recvmsg(100, 100)
        sock.sendmsg([data], asked, 0, sender)  # from the address that was asked
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
udp.bind(("::", int(sys.argv[1])))
tcp = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
threading.Thread(target=echo, args=[udp], daemon=True).start()
print(flush=True)
while True:
    tcp.accept()[0].close()
"""
KNOCK = """
import json, socket, sys, time
from concurrent.futures import ThreadPoolExecutor
def answered(one, until):
    one.settimeout(0.5)  # a datagram may be lost on a busy machine
    while time.monotonic() < until:
        one.send(b"knock")
        try:
            return one.recv(100)
        except TimeoutError:
            pass
    raise TimeoutError
def knock(target):
    kind, address, port = target
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as one:
        one.settimeout(5)
        try:
            one.bind((source, 0))
            one.connect((address, port))
            one.getpeername()  # connect() may succeed although it was refused (Linux 6.18)
            if kind == "udp":
                answered(one, time.monotonic() + 5)
        except TimeoutError:
            return "silent"
        except OSError:
            return "refused"
    return "open"
source, targets = sys.argv[1], json.loads(sys.argv[2])
with ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(knock, targets))))
"""

Target = tuple[str, str, int]


@dataclass
class Site:
    """A host with its engine, and a namespace for the rest of the network."""

    machine: Machine
    outside: list[str]
    proxy: bool  # Whether the engine proxies traffic of sessions to published ports of their host

    def firewall(self, word: str, config: Path) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "agent", "firewall", word, "--config", str(config))
        inside = self.machine.engine.network.inside(*command)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            inside, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30, check=False
        )

    def rules(self) -> list[str]:
        """All filter rules of the host."""
        return [
            line
            for tool in ("iptables-save", "ip6tables-save")
            for line in self.machine.run(tool, "-t", "filter").splitlines()
            if line.startswith("-A")
        ]


def serving(command: list[str]) -> contextlib.AbstractContextManager[None]:
    return running([*command, sys.executable, "-c", SERVE, str(SERVICE)])


@contextlib.contextmanager
def joined(engine: PrivateEngine) -> Iterator[list[str]]:
    """A namespace that the engine reaches; yields a command prefix to run in it."""
    name = f"{engine.network.name}-o"
    run("ip", "netns", "add", name)
    try:
        run(*f"ip -n {engine.network.name} link add out type veth peer eth0 netns {name}".split())
        for command in (
            f"-n {engine.network.name} address add 192.0.2.1/24 dev out",
            f"-n {engine.network.name} address add 2001:db8::1/64 dev out nodad",
            f"-n {engine.network.name} link set out up",
            f"-n {name} link set lo up",
            f"-n {name} address add 192.0.2.2/24 dev eth0",
            f"-n {name} address add 2001:db8::2/64 dev eth0 nodad",
            f"-n {name} link set eth0 up",
            f"-n {name} route add {SESSIONS6} via 2001:db8::1",
        ):
            run("ip", *command.split())
        for v4, v6 in (METADATA, ELSEWHERE, MANAGEMENT, RESOLVER):
            run(*f"ip -n {name} address add {v4}/32 dev lo".split())
            run(*f"ip -n {name} address add {v6}/128 dev lo nodad".split())
            run(*f"ip -n {engine.network.name} route add {v4} via 192.0.2.2".split())
            run(*f"ip -n {engine.network.name} route add {v6} via 2001:db8::2".split())
        outside = ["nsenter", f"--net=/run/netns/{name}"]
        with serving(outside):
            yield outside
    finally:
        run("ip", "netns", "delete", name)


@pytest.fixture(
    scope="module",
    params=[True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["proxy", "no-proxy"],
)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    settings = {"ipv6": True, "fixed_cidr_v6": SESSIONS6, "userland_proxy": request.param}
    with (
        a_machine(**settings) as machine,
        joined(machine.engine) as outside,
        serving(machine.engine.network.inside()),
    ):
        yield Site(machine, outside, request.param)


@pytest.fixture
def agent(site: Site) -> Iterator[Agent]:
    # An engine keeps the rules of a container whose start its end has interrupted.
    agent = Agent(site.machine, ports=4, prepared=0)
    agent.settings |= {
        "firewall_bridges": ["docker0"],
        "firewall_blocked": ["10.9.0.0/16", "2001:db8:a::/48"],
        "firewall_allowed": [f"{RESOLVER[0]}:{SERVICE}/udp", f"[{RESOLVER[1]}]:{SERVICE}/udp"],
    }
    with agent:
        yield agent
        assert site.firewall("remove", agent.config).returncode == 0
        assert not [rule for rule in site.rules() if "TILTYARD" in rule]


def both(addresses: Iterable[str]) -> list[Target]:
    return [(kind, address, SERVICE) for address in addresses for kind in ("tcp", "udp")]


def reached(command: list[str], targets: list[Target], source: str = "") -> set[Target]:
    """The targets that answer from a namespace, at one of its addresses."""
    answers = json.loads(run(*command, sys.executable, "-c", KNOCK, source, json.dumps(targets)))
    return {target for target, answer in zip(targets, answers, strict=True) if answer == "open"}


def inside(agent: Agent, session: pb.Session) -> tuple[list[str], dict[str, Any]]:
    """A command prefix for a session's network, and the engine's description of it."""
    container = agent.container_of(session)
    [network] = container.attrs["NetworkSettings"]["Networks"].values()
    return ["nsenter", f"--net=/proc/{container.attrs['State']['Pid']}/ns/net"], network


def test_sessions_reach_the_internet_but_not_their_host_or_its_cloud(
    site: Site, agent: Agent
) -> None:
    one = agent.play()
    other = agent.play(protocol=pb.PROTOCOL_TCP)
    session, network = inside(agent, one)
    neighbour, of_neighbour = inside(agent, other)
    engine = site.machine.engine
    gateways = [network["Gateway"], network["IPv6Gateway"]]
    of_host = both([*gateways, engine.network.address, "192.0.2.1", "2001:db8::1"])
    of_cloud = both([*METADATA, *MANAGEMENT])
    resolver: list[Target] = [("udp", address, SERVICE) for address in RESOLVER]
    not_allowed: list[Target] = [("tcp", address, SERVICE) for address in RESOLVER]
    private = both([of_neighbour["IPAddress"], of_neighbour["GlobalIPv6Address"]])
    of_neighbours: Target = ("tcp", engine.network.address, port_of(other))
    its_own: Target = ("udp", engine.network.address, port_of(one))
    # The proxy accepts TCP for any container. Before 28 it answers UDP from another address.
    published = {of_neighbours} if site.proxy else {its_own}
    if site.proxy and int(site.machine.client.version()["Version"].partition(".")[0]) >= 28:
        published |= {its_own}
    always = {*both(ELSEWHERE), *resolver}
    for_all = {*always, *published}
    everything = [of_neighbours, its_own, *always, *of_host, *of_cloud, *not_allowed, *private]
    show = ("ip", "-6", "address", "show", "dev", "docker0", "tentative")
    eventually(lambda: not site.machine.run(*show), "the bridge has its addresses")
    with serving(neighbour):
        before = reached(session, everything)
        assert before >= {*always, *of_host, *of_cloud, *not_allowed}
        # Without the proxy the engine rejects it, as traffic between containers.
        assert (before >= published) is site.proxy
        assert site.firewall("check", agent.config).returncode == 1
        assert site.firewall("apply", agent.config).stdout == "rules added\n"
        assert reached(session, everything) == for_all
        assert reached(engine.network.inside(), private) == set(
            private
        )  # the host reaches its sessions
    for player_address in ("192.0.2.2", MANAGEMENT[0]):  # blocked addresses may still connect
        assert reached(site.outside, [("udp", "192.0.2.1", port_of(one))], player_address)
    with Player(site.machine, port_of(one)) as player:
        assert player.seen_as(one) == player.address
    assert len(reached(site.outside, both(["192.0.2.1", "2001:db8::1"]))) == 4
    assert len(reached(engine.network.inside(), both(METADATA))) == 4


def test_sessions_reach_published_ports_of_each_other_without_the_proxy() -> None:
    with (
        a_machine(userland_proxy=False) as machine,
        Agent(machine, ports=3, firewall_bridges=["docker0"]) as agent,
    ):
        one = agent.play()
        other = agent.play()
        session, _ = inside(agent, one)
        host = machine.engine.network.address
        published: list[Target] = [("udp", host, port_of(each)) for each in (one, other)]
        assert not reached(session, published)
        assert Site(machine, [], proxy=False).firewall("apply", agent.config).returncode == 0
        assert reached(session, published) == set(published)


@pytest.mark.slow
def test_rules_are_idempotent_and_survive_the_engine(site: Site, agent: Agent) -> None:
    agent.play()
    assert site.firewall("apply", agent.config).stdout == "rules added\n"
    rules = site.rules()
    assert site.firewall("apply", agent.config).stdout == "the rules are in place\n"
    assert site.rules() == rules
    site.machine.engine.kill()
    site.machine.engine.start()
    assert site.firewall("check", agent.config).stdout == "the rules are in place\n"


def tools_within(command: list[str], variant: str, folder: Path) -> Path:
    """A folder with iptables of one variant that work in a namespace."""
    for tool in ("iptables", "ip6tables"):
        for name in (tool, f"{tool}-save", f"{tool}-restore"):
            found = shutil.which(f"{tool}{variant}{name.removeprefix(tool)}")
            assert found is not None
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec {" ".join(command)} {found} "$@"\n')
            script.chmod(0o755)
    return folder


@pytest.fixture
def firewall(
    site: Site, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Firewall:
    """The firewall of the site."""
    tools = tools_within(site.machine.engine.network.inside(), "", tmp_path)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    firewall = Firewall(load_config(agent.config, {}).firewall())
    firewall.apply()
    return firewall


@pytest.mark.slow
def test_f23_rules_that_are_flushed_are_noticed_and_those_of_others_stay(
    site: Site, agent: Agent, firewall: Firewall
) -> None:
    theirs = "-s 192.0.2.7/32 -p tcp -m tcp --dport 22 -j ACCEPT"
    for chain in ("INPUT", "DOCKER-USER"):
        site.machine.run("iptables", "-I", chain, *theirs.split())
    for happens, named in (
        ("-D INPUT 2", INPUT_CHAIN),
        (f"-F {INPUT_CHAIN}", INPUT_CHAIN),
        ("-I DOCKER-USER -j ACCEPT", FORWARD_CHAIN),
    ):
        site.machine.run("iptables", *happens.split())
        assert any(named in problem for problem in firewall.problems())
        assert firewall.apply()
        assert firewall.problems() == []
    for chain in ("INPUT", "DOCKER-USER"):
        assert f"-A {chain} {theirs}" in site.rules()
        site.machine.run("iptables", "-D", chain, *theirs.split())
    site.machine.run("iptables", "-D", "DOCKER-USER", "-j", "ACCEPT")
    site.machine.run("iptables", "-F", "DOCKER-USER")
    checked = site.firewall("check", agent.config)
    assert checked.returncode == 1
    assert FORWARD_CHAIN in checked.stderr
    agent.restart()
    eventually(lambda: any("firewall apply" in said for said in agent.warnings), "it says so")
    assert site.firewall("apply", agent.config).returncode == 0
    site.machine.run("iptables", "-A", "DOCKER-USER", "-j", "RETURN")


async def test_f23_a_session_whose_rule_is_gone_is_told_until_the_engine_makes_it_again(
    site: Site, agent: Agent, firewall: Firewall
) -> None:
    session = agent.play()
    _, network = inside(agent, session)
    published = {(Protocol.UDP, port_of(session)): network["IPAddress"]}
    watch = FirewallWatch(
        firewall,
        FakeClock(),
        bind_address=ip_address("0.0.0.0"),
        published=lambda: published,
        held=lambda: None,
        notify=lambda: None,
    )

    async def warnings() -> tuple[str, ...]:
        await watch.look()
        await watch.look()
        return watch.warnings

    try:
        assert await warnings() == ()
        other = f"-p udp --dport {FIRST} -j DNAT --to-destination {ELSEWHERE[0]}"
        site.machine.run("iptables", "-t", "nat", "-I", "DOCKER", *other.split())
        [warning] = await warnings()
        assert f"udp {FIRST} to {ELSEWHERE[0]}" in warning
        site.machine.run("iptables", "-t", "nat", "-F", "DOCKER")
        [warning] = await warnings()
        assert f"udp {FIRST}" in warning
        site.machine.engine.kill()
        site.machine.engine.start()
        assert await warnings() == ()
        with Player(site.machine, FIRST) as player:
            assert player.seen_as(session) == player.address
    finally:
        await watch.close()


@pytest.mark.parametrize("variant", ["-nft", "-legacy"])
def test_installs_and_removes_rules_with_either_variant_of_iptables(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PrivateNetwork.made() as network:
        tools = tools_within(network.inside(), variant, tmp_path)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        settings = {
            "TILTYARD_AGENT_PUBLIC_ADDRESS": "192.0.2.1",
            "TILTYARD_AGENT_FIREWALL_BLOCKED": "10.0.0.0/8,fc00::/7",
            "TILTYARD_AGENT_FIREWALL_ALLOWED": "10.0.0.53:53/udp,[fd00::53]:53/udp",
        }
        firewall = Firewall(load_config(None, settings).firewall())
        run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT")
        before = chains()
        assert len(firewall.problems()) == 8
        assert firewall.apply()
        assert firewall.problems() == []
        assert not firewall.apply()
        assert firewall.remove()
        assert chains() == before
        assert not firewall.remove()


def chains() -> list[str]:
    dumps = run("iptables-save", "-t", "filter") + run("ip6tables-save", "-t", "filter")
    lines = [line for line in dumps.splitlines() if line[:1] in {":", "-"}]
    return [line.partition(" [")[0] for line in lines]
