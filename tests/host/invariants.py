"""What must hold of a whole machine after a fault: I1 to I7, and that sessions can be started."""

import base64
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent.domain.containers.engine import LABEL_PREPARED
from agent.domain.sessions.session import Process, Session
from agent.state.record import PREPARED
from tests.docker.stack import play_round
from tests.faults import invariants
from tests.faults.callers import assert_durable
from tests.faults.containers import led_by
from tests.faults.ledger import ledger
from tests.faults.real_host import until_right
from tests.faults.records import recorded_sessions
from tests.host.machine import Machine
from tests.host.whole_host import WholeHost
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import STATES

_LOOK = Path(__file__).with_name("look.py").read_text()
_TRANSLATIONS = Path(__file__).with_name("translations.py").read_text()
_AGENT_PYTHON = "/opt/tiltyard/agent/bin/python"
_INSPECT_RUNNING = "docker ps --quiet --filter label=io.tiltyard.agent | xargs docker inspect"
_STATES = {number: state for state, number in STATES.items()}


def assert_survived(host: WholeHost) -> None:
    """Everything is as it must be; a new session can be played, and all can be ended."""
    host.until_ready()
    assert_right(host, host.system)
    assert_durable(host.client, host.account, host.made)
    fresh = host.start()
    host.until_ready()
    play_round(fresh)
    host.end_all()
    # A check has some seconds, of which a busy emulated machine may need more.
    until_right(lambda: _found_by_doctor(host.system), host.patience)
    ledger.checked |= {6, 7}


def _found_by_doctor(system: Machine) -> list[str]:
    """Return the output of `doctor` if a check fails."""
    done = system.attempt("tiltyard-agent", "doctor")
    return [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()


def assert_right(host: WholeHost, system: Machine) -> None:
    """What must hold of a machine of this deployment holds soon."""
    until_right(lambda: invariants.violations(_observed(system)), host.patience)
    ledger.checked |= invariants.OF_A_HOST


def translated_ports(host: WholeHost) -> set[int]:
    """Return the host ports that the table `tiltyard` of the kernel has.

    The table soon has each published port of the containers that run, and nothing else.
    """
    found: set[_Translation] = set()

    def wrong() -> list[str]:
        nonlocal found
        system = host.system
        listed = json.loads(system.run(_AGENT_PYTHON, "-c", _TRANSLATIONS))
        found = {_Translation(*each) for each in listed}
        inspected = json.loads(system.run("bash", "-euc", _INSPECT_RUNNING))
        wanted = {
            each
            for container in inspected
            for each in _published(container["NetworkSettings"], system.network.address)
        }
        missing = [f"{each} is missing" for each in wanted - found]
        return missing + [f"{each} is of no container" for each in found - wanted]

    until_right(wrong, host.patience)
    return {each.host_port for each in found}


class _Translation(NamedTuple):
    """From a container's address and port, such as 7777/udp, to those that players know."""

    address: str
    port: str
    host_address: str
    host_port: int


def _published(network: Mapping[str, Any], host_address: str) -> Iterator[_Translation]:
    """Return the translations of a container, by the engine's description of its network."""
    [address] = {each["IPAddress"] for each in network["Networks"].values()}
    for port, bindings in network["Ports"].items():
        for binding in bindings or ():
            yield _Translation(address, port, host_address, int(binding["HostPort"]))


def _observed(system: Machine) -> invariants.Observation:
    """What the records, the engine and the kernel of the machine say at this moment."""
    seen = json.loads(system.run("python3", "-c", _LOOK))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in seen["files"].items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        for name in seen["prepared"]:
            (Path(folder) / PREPARED / name).mkdir(parents=True)
        sessions = recorded_sessions(Path(folder))
    assert invariants.doubled(sessions) == []
    about = seen["status"]["host"]
    ports = 2 * (about["port_range_last"] - about["port_range_first"] + 1)
    containers = [(_session(each, sessions), each) for each in seen["containers"]]
    waiting = [each for owner, each in containers if not owner]
    rules = led_by(seen["nat"]).difference(*map(_ports, waiting))
    if system.cuts:  # An engine keeps the rules of a container whose start the cut interrupted
        rules &= {port for each in invariants.live(sessions) for port in invariants.ports_of(each)}
    return invariants.Observation(
        now=seen["now"],
        sessions=sessions,
        containers=[_container(owner, each) for owner, each in containers if owner],
        prepared=[each["Config"]["Labels"][LABEL_PREPARED] for each in waiting],
        prepared_folders=frozenset(seen["prepared"]),
        living=frozenset(
            each.process for each in sessions if each.process and _lives(each.process, seen)
        ),
        reported={
            each["internal_id"]: _STATES[pb.State.Value(each["state"])]
            for each in seen["sessions"]
        },
        ports=ports,
        free_ports=about["free_tcp_ports"] + about["free_udp_ports"],
        rules=rules,
    )


def _session(inspected: Mapping[str, Any], sessions: Sequence[Session]) -> str:
    """The internal id of the session that has a container; empty if it waits for one."""
    name = inspected["Name"].removeprefix("/")
    labels = inspected["Config"]["Labels"]
    return invariants.session_of(inspected["Id"], name, labels, sessions)


def _container(internal_id: str, inspected: Mapping[str, Any]) -> invariants.SeenContainer:
    return invariants.SeenContainer(
        inspected["Name"].removeprefix("/"),
        internal_id,
        running=inspected["State"]["Running"],
        ports=_ports(inspected),
    )


def _ports(inspected: Mapping[str, Any]) -> frozenset[invariants.Address]:
    """The host ports that the engine publishes for a container."""
    return frozenset(
        (port.partition("/")[2], int(binding["HostPort"]))
        for port, bindings in (inspected["NetworkSettings"]["Ports"] or {}).items()
        for binding in bindings or ()
    )


def _lives(process: Process, seen: Mapping[str, Any]) -> bool:
    return [process.pid, process.start_ticks] in seen["processes"]
