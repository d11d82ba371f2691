"""Adds, checks and removes firewall rules with the host's iptables, legacy or nft. Blocks."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.network import firewall_rules
from agent.network.firewall_rules import Address, Plan, Table, tables
from agent.network.led_ports import HostPort, Target, led_ports

LOCK_SECONDS = 5  # Timeout of the lock that programs hold while they write rules
TOOL_SECONDS = 15.0
"""Timeout of one run of a tool, including LOCK_SECONDS; 8,000 rules take less than a second."""

_TOOLS = {4: "iptables", 6: "ip6tables"}
_NAMES = {4: "IPv4", 6: "IPv6"}
_IPV6 = Path("/proc/net/if_inet6")  # Missing if IPv6 is disabled in the kernel
_TRIES = 3  # Attempts to change rules, since other programs may change them concurrently


class FirewallError(Exception):
    """A tool of the host failed; the text names the tool and the cause."""


class Firewall:
    """The rules of one plan in the firewall of this network namespace."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @property
    def ports(self) -> tuple[int, int]:
        """The range of session ports, first and last."""
        return self._plan.ports

    def apply(self) -> bool:
        """Add the rules; False if they were in place. Other rules are not changed."""
        changes = [
            _change_rules(version, firewall_rules.rules(self._plan, version))
            for version in _versions()
        ]
        return any(changes)

    def remove(self) -> bool:
        """Remove all of our rules; False if there were none."""
        return Firewall(replace(self._plan, bridges=())).apply()

    def problems(self) -> list[str]:
        """List missing rules, one clause each; raises FirewallError if they cannot be read."""
        return [
            f"{_NAMES[version]}: {problem}"
            for version in _versions()
            for problem in firewall_rules.problems(
                _read(version, "filter"), firewall_rules.rules(self._plan, version)
            )
        ]

    def led_ports(self, bind_address: Address) -> Mapping[HostPort, Target] | None:
        """Return where DNAT rules lead ports published on an address; None if that is unknown.

        Raises FirewallError.
        """
        known = (bind_address, self._plan.public_address)
        reached_at = [address for address in known if not address.is_unspecified]
        return led_ports(_read(bind_address.version, "nat"), reached_at)


def _change_rules(version: int, wanted: Mapping[str, Sequence[str]]) -> bool:
    for tries_left in reversed(range(_TRIES)):
        text = firewall_rules.to_apply(_read(version, "filter"), wanted)
        if not text:
            return False
        try:
            _run(f"{_TOOLS[version]}-restore", "--noflush", f"--wait={LOCK_SECONDS}", text=text)
        except FirewallError:
            if not tries_left:
                raise
        else:
            break
    return True


def _versions() -> tuple[int, ...]:
    return (4, 6) if _IPV6.exists() else (4,)


def _read(version: int, table: str) -> Table:
    return tables(_run(f"{_TOOLS[version]}-save", "-t", table)).get(table, {})


def _run(tool: str, *arguments: str, text: str = "") -> str:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and no words of callers
            [tool, *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TOOL_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise FirewallError(f"cannot run {tool}: install iptables") from error
    except subprocess.TimeoutExpired as error:
        raise FirewallError(f"{tool} did not end within {TOOL_SECONDS:g} s") from error
    except OSError as error:
        raise FirewallError(f"cannot run {tool}: {error.strerror}") from error
    if done.returncode:
        cause = done.stderr.strip() or f"it ended with {done.returncode}"
        raise FirewallError(f"{tool} failed: {cause}")
    return done.stdout
