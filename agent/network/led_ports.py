"""Where rules of the nat table lead the ports of a host. Pure.

The rules of PREROUTING apply first, up to the jump to the chain of Docker Engine, then the rules
of that chain; the first rule that matches decides. A rule of another program counts if it matches
what all players send: it names a protocol, ports and perhaps the address of the host, and excludes
at most an interface or a source.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from agent.network.firewall_rules import Address, Network, Table
from tiltyard.contract import Protocol

HostPort = tuple[Protocol, int]

_ENTRANCE = "PREROUTING"
_ENGINE = "DOCKER"
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_ADDRESS = re.compile(r"\[([^]]+)\]|([0-9.]+)|([0-9a-f:]+)")
"""The address of `ADDRESS:PORT`, `[ADDRESS]:PORT` or `ADDRESS`."""
_CONDITIONS = frozenset({"-p", "-d", "! -d", "--dport", "--dports"})
_NO_CONDITIONS = frozenset(
    {"-m tcp", "-m udp", "-m multiport", "-m comment", "--comment", "-j", "--to-destination"}
)
_EXCEPTIONS = frozenset({"! -i", "! -s"})  # Players do not come from bridges of the engine
_COUNTED = _CONDITIONS | _NO_CONDITIONS | _EXCEPTIONS


@dataclass(frozen=True, slots=True)
class Target:
    """Where a rule leads packets; `text` is as iptables prints it, with the port if it has one."""

    address: Address
    text: str


def led_ports(nat: Table, reached_at: Collection[Address]) -> dict[HostPort, Target] | None:
    """Return the targets of ports that rules lead away from the host.

    `reached_at`: the addresses of the host at which players reach ports. None without the chain of
    Docker Engine: then the engine may lead ports in ways that this table does not show.
    """
    if _ENGINE not in nat:
        return None
    found: dict[HostPort, Target] = {}
    for options in _in_order(nat):
        rule = _parsed(options)
        if rule is not None and rule.leads_away(reached_at):
            for port in rule.ports:
                found.setdefault((rule.protocol, port), rule.target)
    return found


def led_elsewhere(
    led: Mapping[HostPort, Target], held: Collection[HostPort], ports: tuple[int, int]
) -> dict[HostPort, Target]:
    """Select the led ports of a range, first and last, that no container of the agent holds.

    Their targets do not matter: the address of a container that is gone can be that of another
    one, whose players would come from a port that is not its own.
    """
    first, last = ports
    return {
        (protocol, port): target
        for (protocol, port), target in led.items()
        if first <= port <= last and (protocol, port) not in held
    }


@dataclass(frozen=True, slots=True)
class _Rule:
    """A DNAT rule for packets to `network`, if that is not None, or to all but `other_than`."""

    protocol: Protocol
    ports: tuple[int, ...]
    target: Target
    network: Network | None
    other_than: Network | None

    def leads_away(self, reached_at: Collection[Address]) -> bool:
        """Return whether packets to one of these addresses go to another one."""
        matched = [
            address
            for address in reached_at
            if (self.network is None or address in self.network)
            and (self.other_than is None or address not in self.other_than)
        ]
        return bool(matched) and self.target.address not in reached_at


def _in_order(nat: Table) -> Iterator[dict[str, str]]:
    """The options of each rule that counts; the engine's do with any options."""
    jump = f"-j {_ENGINE}"
    for rule in nat.get(_ENTRANCE, ()):
        if rule.endswith(jump):
            break
        options = _options(rule)
        if options.keys() <= _COUNTED:
            yield options
    yield from map(_options, nat[_ENGINE])


def _parsed(options: Mapping[str, str]) -> _Rule | None:
    """Parse a DNAT rule for ports; None for other rules."""
    if options.get("-j") != "DNAT":
        return None
    ports = options.get("--dport") or options.get("--dports", "")
    target = options.get("--to-destination", "")
    address = _ADDRESS.match(target)
    try:
        return _Rule(
            Protocol(options.get("-p", "")),
            tuple(_numbers(ports)),
            Target(ip_address(address[address.lastindex or 0] if address else ""), target),
            _network(options, "-d"),
            _network(options, "! -d"),
        )
    except ValueError:  # other protocols, only a port as target, masks with gaps
        return None


def _options(text: str) -> dict[str, str]:
    """The options of a rule with their values; one that is negated begins with `! `."""
    found: dict[str, str] = {}
    name = ""
    negation = ""
    for word in _WORD.findall(text):
        if word == "!":
            negation = "! "
        elif name == "-m":
            del found[name]
            name = f"-m {word}"
            found[name] = ""
        elif word.startswith("-"):
            name = negation + word
            negation = ""
            found[name] = ""
        else:
            found[name] = word
    return found


def _numbers(ports: str) -> Iterator[int]:
    """The ports of `7777`, `7777:7780` or `7777,7779:7780`."""
    for part in filter(None, ports.split(",")):
        first, _, last = part.partition(":")
        yield from range(int(first), int(last or first) + 1)


def _network(options: Mapping[str, str], name: str) -> Network | None:
    return ip_network(options[name]) if name in options else None
