"""A private network namespace, connected with the test's by a veth pair."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

ADDRESSES = IPv4Network("198.18.0.0/15")
"""Addresses of the veth pairs, four each, from the range for benchmarks (RFC 2544)."""

COMMAND_TIMEOUT = 30.0
_TRIES = 50  # Maximum number of taken names to skip: of 32,768 a machine uses a handful


class Network:
    """A network with the test; its addresses follow from its name, so that many can exist."""

    def __init__(self) -> None:
        self.name = ""  # Empty before `make`
        self.host_address = ""  # The address of the test for the other side
        self.address = ""  # The address of the other side for the test

    def _call(self, number: int) -> None:
        self.name = f"ty{number:04x}"
        self.host_address = str(ADDRESSES[4 * number + 1])
        self.address = str(ADDRESSES[4 * number + 2])


class PrivateNetwork(Network):
    """A network namespace, whose `name` is that in `ip netns`."""

    def make(self) -> None:
        """Create the namespace and the pair; after a failure `remove` cleans up."""
        for number in random.sample(range(ADDRESSES.num_addresses // 4), _TRIES):
            name = f"ty{number:04x}"
            command = ("ip", "netns", "add", name)
            made = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=COMMAND_TIMEOUT
            )
            if made.returncode == 0:
                break
            if "File exists" not in made.stderr:
                raise RuntimeError(f"cannot make a network namespace: {made.stderr.strip()}")
        else:
            raise RuntimeError(f"cannot make a network namespace: {_TRIES} names are taken")
        self._call(number)
        run("ip", "-netns", name, "link", "set", "lo", "up")
        self.plug_in()

    def plug_in(self) -> None:
        """Connect the namespace with the test by a new pair of the same addresses."""
        name = self.name
        for command in (
            f"link add {name} type veth peer name eth0 netns {name}",
            f"address add {self.host_address}/30 dev {name}",
            f"link set {name} up",
            f"-netns {name} address add {self.address}/30 dev eth0",
            f"-netns {name} link set eth0 up",
            f"-netns {name} route add default via {self.host_address}",
        ):
            run("ip", *command.split())

    def unplug(self) -> None:
        """Remove the pair; neither end is notified."""
        run("ip", "link", "delete", self.name)

    def remove(self) -> None:
        """Remove the pair and the namespace. Idempotent."""
        if self.name:
            with contextlib.suppress(subprocess.CalledProcessError):  # not created yet
                self.unplug()
            run("ip", "netns", "delete", self.name)

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[PrivateNetwork]:
        """Make a network, and remove it at the end."""
        network = cls()
        try:
            network.make()
            yield network
        finally:
            network.remove()

    def pids(self) -> list[int]:
        """The pids in the namespace."""
        return [int(pid) for pid in run("ip", "netns", "pids", self.name).split()]

    def inside(self, *command: str) -> list[str]:
        """Wrap a command to run in the namespace.

        `ip netns exec` would also mount a new /sys, and hide the cgroups.
        """
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def lead_to_host(self, port: int) -> None:
        """Forward a TCP port of the namespace's 127.0.0.1 to that of `host_address`.

        A server on both addresses of the test then has one name for both sides.
        """
        run(*self.inside("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"))
        nat = f"iptables -w -t nat -p tcp --dport {port}"
        for rule in (
            f"-I OUTPUT -d 127.0.0.1 -j DNAT --to {self.host_address}",
            f"-I POSTROUTING -d {self.host_address} -j SNAT --to {self.address}",
        ):
            run(*self.inside(*nat.split(), *rule.split()))


class TapNetwork(Network):
    """A network interface of this `name` for a virtual machine."""

    def make(self) -> None:
        """Create the interface; after a failure `remove` cleans up."""
        number = random.randrange(ADDRESSES.num_addresses // 4)
        run("ip", "tuntap", "add", "dev", f"ty{number:04x}", "mode", "tap")
        self._call(number)
        run("ip", "address", "add", f"{self.host_address}/30", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    @contextlib.contextmanager
    def joined(self, other: TapNetwork) -> Iterator[None]:
        """Let the machines of both reach each other within the context."""
        ways = [(self.name, other.name), (other.name, self.name)]
        rules = [("FORWARD", "-i", begin, "-o", end, "-j", "ACCEPT") for begin, end in ways]
        forward = Path("/proc/sys/net/ipv4/ip_forward")
        with contextlib.ExitStack() as stack:
            stack.callback(forward.write_text, forward.read_text())
            forward.write_text("1")
            for rule in rules:
                run("iptables", "-w", "-I", *rule)
                stack.callback(run, "iptables", "-w", "-D", *rule)
            yield

    def remove(self) -> None:
        """Remove the interface. Idempotent."""
        if self.name:
            run("ip", "link", "delete", self.name)
            self.name = ""


def run(*command: str, timeout: float = COMMAND_TIMEOUT) -> str:
    """Run a system command; return its output, raise if it fails."""
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=timeout
    ).stdout
