"""Ports that rules of the nat table lead elsewhere."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest

from agent.network.firewall import Firewall, FirewallError
from agent.network.firewall_rules import Address, Plan
from agent.network.firewall_watch import FirewallWatch
from agent.network.led_ports import HostPort, Target, led_elsewhere, led_ports
from tests.support.fake_clock import FakeClock
from tiltyard.contract import Protocol

HOST = ip_address("192.0.2.1")
HOST6 = ip_address("2001:db8::1")
JUMP = "-m addrtype --dst-type LOCAL -j DOCKER"
RANGE = (20000, 20009)


def udp(port: int) -> HostPort:
    return Protocol.UDP, port


def tcp(port: int) -> HostPort:
    return Protocol.TCP, port


def texts(
    before: str = "", engine: str = "", after: str = "", *, at: Address = HOST
) -> dict[HostPort, str]:
    """Where one rule of each place leads ports of a host."""
    prerouting = [rule for rule in (before, JUMP, after) if rule]
    nat = {"PREROUTING": prerouting, "DOCKER": ["-i docker0 -j RETURN", engine]}
    led = led_ports(nat, [at])
    assert led is not None
    return {port: target.text for port, target in led.items()}


ENGINES = "-p udp -m udp --dport 20001 -j DNAT --to-destination 172.17.0.2:7777"


@pytest.mark.parametrize(
    ("rule", "led"),
    [
        (f"! -i docker0 {ENGINES}", {udp(20001): "172.17.0.2:7777"}),
        (ENGINES, {udp(20001): "172.17.0.2:7777"}),
        (f"-d 192.0.2.1/32 {ENGINES}", {udp(20001): "172.17.0.2:7777"}),
        (f"-d 127.0.0.1/32 {ENGINES}", {}),  # another program's, on an address of its own
        (f"-m an-option-of-another-engine {ENGINES}", {udp(20001): "172.17.0.2:7777"}),
        (ENGINES.replace("udp", "tcp"), {tcp(20001): "172.17.0.2:7777"}),
        (ENGINES.replace("udp", "sctp"), {}),
        ("-i docker0 -j RETURN", {}),
    ],
)
def test_rules_of_the_engine_lead_ports(rule: str, led: dict[HostPort, str]) -> None:
    assert texts(engine=rule) == led


@pytest.mark.parametrize(
    ("conditions", "led"),
    [
        ("-p tcp -m tcp --dport 20001", [tcp(20001)]),
        ("-p udp -m udp --dport 20001:20003", [udp(20001), udp(20002), udp(20003)]),
        ("-p udp -m multiport --dports 20001,20003:20004", [udp(20001), udp(20003), udp(20004)]),
        ('-p udp --dport 20001 -m comment --comment "to \\"old\\" -s host"', [udp(20001)]),
        ("-d 192.0.2.0/24 -p udp --dport 20001", [udp(20001)]),
        ("-d 198.51.100.7/32 -p udp --dport 20001", []),
        ("! -d 192.0.2.1/32 -p udp --dport 20001", []),
        ("! -d 198.51.100.7/32 -p udp --dport 20001", [udp(20001)]),
        ("-d 192.0.2.0/255.0.255.0 -p udp --dport 20001", []),
        ("! -s 10.0.0.0/8 -p udp --dport 20001", [udp(20001)]),
        ("-s 10.0.0.0/8 -p udp --dport 20001", []),
        ("-i wg0 -p udp --dport 20001", []),
        ("-p udp -m mark --mark 0x1 --dport 20001", []),
        ("-p udp -m socket --dport 20001", []),
        ("-p udp ! --dport 20001", []),
        ("-p udp", []),
    ],
)
def test_rules_of_others_count_if_they_lead_all_players(
    conditions: str, led: list[HostPort]
) -> None:
    assert list(texts(before=f"{conditions} -j DNAT --to-destination 10.0.0.9:1")) == led


@pytest.mark.parametrize(
    ("target", "led"),
    [
        ("DNAT --to-destination 10.0.0.9", [udp(20001)]),
        ("DNAT --to-destination 10.0.0.8-10.0.0.9:1-9", [udp(20001)]),
        ("DNAT --to-destination 192.0.2.1:7777", []),  # the host itself
        ("DNAT --to-destination :7777", []),
        ("REDIRECT --to-ports 7777", []),
        ("ACCEPT", []),
    ],
)
def test_rules_lead_elsewhere_by_their_target(target: str, led: list[HostPort]) -> None:
    assert list(texts(before=f"-p udp -m udp --dport 20001 -j {target}")) == led


def test_first_rule_decides() -> None:
    theirs = "-p udp -m udp --dport 20001 -j DNAT --to-destination 10.0.0.9:9"
    assert texts(before=theirs, engine=ENGINES) == {udp(20001): "10.0.0.9:9"}
    assert texts(engine=ENGINES, after=theirs) == {udp(20001): "172.17.0.2:7777"}
    assert texts(after=theirs) == {}  # the engine's rule of a session would come first
    twice = led_ports({"DOCKER": [ENGINES, theirs]}, [HOST])
    assert twice == {udp(20001): Target(ip_address("172.17.0.2"), "172.17.0.2:7777")}


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("[fd00::2]:7777", "fd00::2"),
        ("fd00::2", "fd00::2"),
    ],
)
def test_rules_of_ipv6_lead_ports(target: str, address: str) -> None:
    conditions = "! -s fe80::/10 -d 2001:db8::1/128 -p udp --dport 20001"
    rule = f"{conditions} -j DNAT --to-destination {target}"
    assert led_ports({"DOCKER": [rule]}, [HOST6]) == {
        udp(20001): Target(ip_address(address), target)
    }
    assert texts(engine=rule, at=ip_address("2001:db8::2")) == {}


def test_ports_are_unknown_without_the_chain_of_the_engine() -> None:
    assert led_ports({"PREROUTING": [ENGINES]}, [HOST]) is None


TARGET = Target(ip_address("172.17.0.2"), "172.17.0.2:7777")


@pytest.mark.parametrize(
    ("held", "elsewhere"),
    [
        ([], [udp(20001), udp(20009), tcp(20001)]),
        ([udp(20001)], [udp(20009), tcp(20001)]),
        ([tcp(20001), udp(20002)], [udp(20001), udp(20009)]),
        ([udp(20001), udp(20009), tcp(20001)], []),
    ],
)
def test_led_ports_that_nothing_holds_are_led_elsewhere(
    held: list[HostPort], elsewhere: list[HostPort]
) -> None:
    ports = [udp(19999), udp(20001), udp(20009), udp(20010), tcp(20001)]
    led = dict.fromkeys(ports, TARGET)
    assert list(led_elsewhere(led, held, RANGE)) == elsewhere


class ScriptedFirewall(Firewall):
    """A firewall whose rules a test sets."""

    def __init__(self) -> None:
        super().__init__(Plan((), (), (), HOST, RANGE))
        self.led: Mapping[HostPort, Target] | None = {}
        self.error: FirewallError | None = None

    def problems(self) -> list[str]:
        return []

    def led_ports(self, bind_address: Address) -> Mapping[HostPort, Target] | None:
        if self.error is not None:
            raise self.error
        return self.led


@dataclass
class Watched:
    """A watch of scripted rules, on a host whose containers hold ports."""

    firewall: ScriptedFirewall = field(default_factory=ScriptedFirewall)
    held: list[frozenset[HostPort] | None] = field(default_factory=list)
    """What the next calls return; an empty set after these."""
    notified: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = FirewallWatch(
            self.firewall,
            FakeClock(),
            bind_address=ip_address("0.0.0.0"),
            published=dict,
            held=lambda: self.held.pop(0) if self.held else frozenset(),
            notify=lambda: self.notified.append(self.watch.port_warnings),
        )

    async def look(self) -> set[HostPort]:
        """Look once; return the ports that no session gets."""
        await self.watch.look()
        return {
            (protocol, port)
            for protocol in Protocol
            for port in range(RANGE[0] - 1, RANGE[1] + 2)
            if self.watch.leads_elsewhere(protocol, port)
        }


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    yield watched
    await watched.watch.close()


async def test_port_is_passed_over_while_a_rule_leads_it_elsewhere(watched: Watched) -> None:
    assert await watched.look() == set()
    watched.firewall.led = {udp(20003): TARGET}
    assert await watched.look() == {udp(20003)}
    watched.firewall.led = {}
    assert await watched.look() == set()


async def test_warns_at_the_second_check_until_the_rule_is_gone(watched: Watched) -> None:
    watched.firewall.led = {udp(20003): TARGET}
    await watched.look()
    assert watched.notified == []  # its session may have ended just now
    await watched.look()
    await watched.look()
    [[warning]] = watched.notified
    assert "udp 20003 to 172.17.0.2:7777" in warning
    watched.firewall.led = {}
    await watched.look()
    assert watched.notified[1:] == [()]
    assert watched.watch.warnings == ()  # the rules that sessions need are in place


async def test_rule_of_a_container_does_not_count(watched: Watched) -> None:
    watched.firewall.led = {udp(20003): TARGET}
    ours = frozenset({udp(20003)})
    watched.held = [ours, ours]
    assert await watched.look() == set()
    watched.held = [ours, frozenset()]  # it has ended while the rules were read
    assert await watched.look() == set()
    watched.held = [frozenset(), ours]  # it has started
    assert await watched.look() == set()


async def test_no_port_is_passed_over_while_containers_are_unknown(watched: Watched) -> None:
    watched.firewall.led = {udp(20003): TARGET}
    watched.held = [None, None]
    assert await watched.look() == set()
    watched.held = [None, frozenset()]
    assert await watched.look() == set()


async def test_no_port_is_passed_over_while_rules_are_unknown(watched: Watched) -> None:
    watched.firewall.led = {udp(20003): TARGET}
    await watched.look()
    watched.firewall.error = FirewallError("iptables-save did not end within 15 s")
    assert await watched.look() == set()
    watched.firewall.error = None
    watched.firewall.led = None  # an engine that leads ports without iptables
    assert await watched.look() == set()
