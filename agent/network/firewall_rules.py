"""The firewall rules that isolate sessions from their host and its network. Pure.

Packets of sessions are identified by their bridge; those to the host pass INPUT, others
DOCKER-USER. Versions of iptables print the same rule differently, so rules are compared by a mark
in their comment: a hash of the rule and of all rules before it in its chain.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from tiltyard.contract import Protocol

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Table = Mapping[str, Sequence[str]]
"""The rules of each chain of one table, as iptables-save prints them after `-A CHAIN`."""

FORWARD_CHAIN = "TILTYARD-FORWARD"
INPUT_CHAIN = "TILTYARD-INPUT"
METADATA: tuple[Network, ...] = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::254/128"))
"""Metadata services of clouds, which contain credentials."""

_USER_CHAIN = "DOCKER-USER"
"""Docker Engine jumps here before its own rules, for rules of the operator."""
_MARK = re.compile(r'--comment "?tiltyard:([0-9a-f]{12})"?(?: |$)')
_DECIDES = re.compile(r"(?:^| )-j (?:ACCEPT|RETURN)(?: |$)")
_SERVICE = re.compile(r"(?:\[(.+)\]|([^:]+)):([0-9]{1,5})/(tcp|udp)", re.ASCII)
_REFUSE = {
    4: "-j REJECT --reject-with icmp-port-unreachable",
    6: "-j REJECT --reject-with icmp6-port-unreachable",
}
_NEIGHBOURS = ("135", "136")
"""ICMPv6 types of neighbour discovery between a container and its bridge."""


@dataclass(frozen=True, slots=True)
class Service:
    """An address, port and protocol."""

    address: Address
    port: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Plan:
    """The destinations that sessions on `bridges` may reach.

    `blocked` is in addition to METADATA. `ports`, first and last, is the range of session ports;
    on `public_address`, sessions of the same host can reach it as well, whether the engine's
    proxy serves a port or a rule of the engine leads it to a container.
    """

    bridges: tuple[str, ...]
    blocked: tuple[Network, ...]
    allowed: tuple[Service, ...]
    public_address: Address
    ports: tuple[int, int]


def service(text: str) -> Service:
    """Parse `ADDRESS:PORT/PROTOCOL`, IPv6 addresses in brackets; raises ValueError."""
    found = _SERVICE.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise ValueError(f"{text!r} is not of the form ADDRESS:PORT/tcp or ADDRESS:PORT/udp")
    address: Address = IPv6Address(found[1]) if found[1] else IPv4Address(found[2])
    return Service(address, int(found[3]), Protocol(found[4]))


def rules(plan: Plan, version: int) -> dict[str, tuple[str, ...]]:
    """Return the rules of our chains for IPv4 or IPv6, with marks; none without bridges."""
    if not plan.bridges:
        return {}
    forward: list[str] = []
    into_host: list[str] = []
    for bridge in plan.bridges:
        source = f"-i {bridge}"
        passes = [
            f"{source} -m conntrack --ctdir REPLY -j RETURN",
            *(
                f"{source} {_to(one.address, one.protocol, str(one.port))} -j RETURN"
                for one in plan.allowed
                if one.address.version == version
            ),
        ]
        forward += passes
        if plan.public_address.version == version:
            published = _published_at(plan.public_address, "{}:{}".format(*plan.ports))
            # The engine's own rules would reject it as traffic between containers.
            forward.append(f"{source} {published} -j ACCEPT")
        forward.append(f"{source} -o {bridge} {_REFUSE[version]}")
        forward += [
            f"{source} -d {network} {_REFUSE[version]}"
            for network in (*METADATA, *plan.blocked)
            if network.version == version
        ]
        into_host += passes
        if version == 6:
            into_host += [
                f"{source} -p ipv6-icmp -m icmp6 --icmpv6-type {kind} -j RETURN"
                for kind in _NEIGHBOURS
            ]
        if plan.public_address.version == version:
            ports = "{}:{}".format(*plan.ports)
            into_host += [
                f"{source} {_to(plan.public_address, protocol, ports)} -j RETURN"
                for protocol in Protocol
            ]
        into_host.append(f"{source} {_REFUSE[version]}")
    return {FORWARD_CHAIN: _with_marks(forward), INPUT_CHAIN: _with_marks(into_host)}


def tables(dump: str) -> dict[str, dict[str, list[str]]]:
    """Parse the output of iptables-save into the chains of each table."""
    found: dict[str, dict[str, list[str]]] = {}
    chains: dict[str, list[str]] = {}
    for line in dump.splitlines():
        if line.startswith("*"):
            chains = found.setdefault(line[1:], {})
        elif line.startswith(":"):
            chains.setdefault(line[1:].split()[0], [])
        elif line.startswith("-A "):
            _, chain, *rule = line.split(" ", 2)
            chains.setdefault(chain, []).extend(rule or [""])
    return found


def problems(table: Table, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """List the rules that are missing in the table `filter`, one clause each."""
    found = [
        f"{chain} is missing" if chain not in table else f"{chain} has other rules"
        for chain, ours in wanted.items()
        if _marks(table.get(chain, ())) != _marks(ours)
    ]
    for chain in wanted:
        found += [
            f"{parent} does not jump to {chain} first"
            for parent in _parents(table, chain)
            if not _jumps_first(table.get(parent, ()), chain)
        ]
    return found


def to_apply(table: Table, wanted: Mapping[str, Sequence[str]]) -> str:
    """Return input for iptables-restore that replaces our rules by `wanted`; empty if it has them.

    Naming a chain empties it, so a chain is replaced as a whole.
    """
    lines = []
    for chain, ours in wanted.items():
        if _marks(table.get(chain, ())) != _marks(ours):
            lines.append(f":{chain} - [0:0]")
            lines += [f"-A {chain} {rule}" for rule in ours]
    for chain in (FORWARD_CHAIN, INPUT_CHAIN):
        if chain in wanted:
            lines += _move_jumps(table, chain, _parents(table, chain))
        else:
            lines += _move_jumps(table, chain, ())
            lines += [f"-F {chain}", f"-X {chain}"] if chain in table else []
    if not lines:
        return ""
    return "\n".join(["*filter", *lines, "COMMIT", ""])


def _move_jumps(table: Table, chain: str, parents: Sequence[str]) -> list[str]:
    """Return the commands after which these parents alone jump to a chain, and do so first."""
    jump = f"-j {chain}"
    right = {parent for parent in parents if _jumps_first(table.get(parent, ()), chain)}
    lines = []
    for parent, present in table.items():
        if parent not in right:
            lines += [f"-D {parent} {rule}" for rule in present if rule == jump]
    lines += [f"-I {parent} 1 {jump}" for parent in parents if parent not in right]
    return lines


def _to(address: Address, protocol: Protocol, ports: str) -> str:
    name = protocol.value
    return f"-d {address} -p {name} -m {name} --dport {ports}"


def _published_at(address: Address, ports: str) -> str:
    """Match packets whose destination was this before the engine led them to a container."""
    return f"-m conntrack --ctstate DNAT --ctorigdst {address} --ctorigdstport {ports}"


def _with_marks(plain: Sequence[str]) -> tuple[str, ...]:
    before = ""
    marked = []
    for rule in plain:
        before = hashlib.sha256(f"{before} {rule}".encode()).hexdigest()[:12]
        marked.append(f"{rule} -m comment --comment tiltyard:{before}")
    return tuple(marked)


def _marks(chain: Sequence[str]) -> list[str]:
    """Return the mark of each rule, "" for a rule without one."""
    found = [_MARK.search(rule) for rule in chain]
    return ["" if mark is None else mark[1] for mark in found]


def _parents(table: Table, chain: str) -> tuple[str, ...]:
    """Return parents of our chain: DOCKER-USER if it exists, FORWARD if that bypasses it."""
    if chain == INPUT_CHAIN:
        return ("INPUT",)
    if _USER_CHAIN not in table:
        return ("FORWARD",)
    if _jumps_first(table.get("FORWARD", ()), _USER_CHAIN):
        return (_USER_CHAIN,)
    return (_USER_CHAIN, "FORWARD")


def _jumps_first(parent: Sequence[str], chain: str) -> bool:
    """Return whether a parent jumps to a chain once, before any rule that accepts."""
    jump = f"-j {chain}"
    if parent.count(jump) != 1:
        return False
    return not any(_DECIDES.search(rule) for rule in parent[: parent.index(jump)])
