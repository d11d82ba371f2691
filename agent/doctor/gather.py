"""Gathers the facts of a host, each on a daemon thread, so that a hung disk blocks no exit."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from agent.client.agent_client import AgentClient, ClientError, Message
from agent.docker.answers import image_root
from agent.docker.dockerd import peer_pid
from agent.docker.errors import Call
from agent.docker.facts import component, isolates
from agent.docker.sdk import sdk_client
from agent.doctor.facts import (
    AgentFacts,
    CertificateFacts,
    EngineFacts,
    Facts,
    HostPort,
    ProcessFacts,
    SourceFacts,
    Unknown,
)
from agent.doctor.host_facts import (
    disk_facts,
    dockerd_facts,
    file_facts,
    init_problem,
    kernel_facts,
    process_facts,
)
from agent.doctor.user_counts import user_counts
from agent.domain.containers.engine import LABEL_AGENT
from agent.domain.errors import AgentError, EngineTimeoutError
from agent.kernel.processes import live_process, members_of
from agent.network.firewall import Firewall, FirewallError
from agent.network.sources.nat_table import NatTable
from agent.network.sources.source_translation import KnownAddresses, own_addresses
from agent.network.tls_certificate import CertificateFiles, UnfitCertificateError, beginning
from agent.rpc.identity import FILE, Identity
from agent.rpc.signing import expire_time
from agent.settings.model import AgentConfig
from agent.settings.policy import Policy, load_policy
from agent.state import state_format
from tiltyard.contract import Protocol
from tiltyard.runtime.settings import SettingsError

ANSWER_SECONDS = 5.0  # Timeout of each engine call; all are cheap
GATHER_SECONDS = 20.0
"""Timeout of everything; the slowest fact takes four engine calls, or two runs of a tool."""

USUAL_MTU = 1500  # Of an engine's bridge without another setting

T = TypeVar("T")


def gather(config: AgentConfig, *, seconds: float = GATHER_SECONDS) -> Facts:
    """Gather facts within the timeout; changes nothing."""
    deadline = time.monotonic() + seconds
    reads: dict[str, Callable[[], Any]] = {
        "docker_socket": lambda: file_facts(config.docker_socket),
        "engine": lambda: engine_facts(config.docker_socket, ANSWER_SECONDS),
        "dockerd": lambda: dockerd_facts(config.docker_socket),
        "kernel": kernel_facts,
        "state_dir": lambda: file_facts(config.state_dir),
        "state_format": lambda: _problem(state_format.check, config.state_dir),
        "state_disk": lambda: disk_facts(config.state_dir),
        "init": lambda: init_problem(config.state_dir),
        "agent_socket": lambda: file_facts(config.socket),
        "agent": lambda: agent_facts(config.socket),
        "policy": lambda: _policy(config.policy),
        "identity": lambda: _identity_facts(config.state_dir / FILE),
        "tls": lambda: tls_facts(config.certificate_files()),
        "firewall": lambda: _firewall_problems(config),
        "source": lambda: _source_facts(config),
    }
    begun = {name: _start(read) for name, read in reads.items()}

    def result(future: Future[Any]) -> Any:
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return Unknown(f"no answer within {seconds:g} s")

    engine = result(begun["engine"])
    if isinstance(engine, EngineFacts):
        begun["engine_disk"] = _start(lambda: disk_facts(engine.data_root))
        if engine.image_root != engine.data_root:
            begun["image_disk"] = _start(lambda: disk_facts(engine.image_root))
    agent = result(begun["agent"])
    if isinstance(agent, AgentFacts):
        begun["user_counts"] = _start(
            lambda: user_counts(processes_of_sessions(agent.first_processes))
        )
    found: dict[str, Any] = dict.fromkeys(("engine_disk", "image_disk", "user_counts"))
    found |= {name: result(future) for name, future in begun.items()}
    return Facts(config=config, **found)


def engine_facts(socket: Path, seconds: float) -> EngineFacts:
    """Query Docker Engine, with a timeout per call; raises AgentError."""
    with sdk_client(socket, Call("info"), seconds) as (client, version):
        info = dict(client.info())
        ours = map(dict, client.containers(filters={"label": LABEL_AGENT}))
        networks = [each for each in client.networks(names=["bridge"]) if each["Name"] == "bridge"]
        return EngineFacts(
            api=str(version["ApiVersion"]),
            runc=component(version, "runc"),
            info=info,
            data_root=Path(info["DockerRootDir"]),
            image_root=Path(image_root(info)),
            kept_apart=any(map(isolates, networks)),
            bridge_mtu=min(map(_mtu_of, networks), default=USUAL_MTU),
            published=frozenset(
                (Protocol(port["Type"]), int(port["PublicPort"]))
                for container in ours
                for port in container.get("Ports") or ()
                if "PublicPort" in port and port["Type"] in {"tcp", "udp"}
            ),
        )


def _mtu_of(network: Mapping[str, Any]) -> int:
    return int((network.get("Options") or {}).get("com.docker.network.driver.mtu", USUAL_MTU))


def agent_facts(socket: Path) -> AgentFacts:
    """Query the agent, and the kernel about its process; raises ClientError."""
    with AgentClient(socket) as agent:
        answer = agent.host()
        live = list(agent.sessions(live_only=True))
    return AgentFacts(
        version=answer["host"]["version"],
        reconciled=answer["reconciled"],
        warnings=tuple(answer["host"]["warnings"]),
        held_ports=frozenset(_held_ports(live)),
        process=_process_behind(socket),
        first_processes={each["internal_id"]: each["pid"] for each in live if each["pid"]},
        prepared=sum(shape["kept"] for shape in answer["host"]["prepared"]),
        unprepared=tuple(_unprepared(answer["host"]["prepared"])),
    )


def _unprepared(shapes: Iterable[Message]) -> list[str]:
    return sorted({f"{each['image']}: {each['error']}" for each in shapes if each["error"]})


def _process_behind(socket: Path) -> ProcessFacts | None:
    pid = peer_pid(str(socket))
    with contextlib.suppress(OSError):  # gone, or in another PID namespace
        return None if pid is None else process_facts(pid)
    return None


def processes_of_sessions(first: Mapping[str, int]) -> dict[str, list[int]]:
    """Find the ids of all processes of sessions. Raises OSError."""
    found = {session: live_process(pid) for session, pid in first.items()}
    return {
        session: [member.process.pid for member in members_of(process)]
        for session, process in found.items()
        if process is not None
    }


def _held_ports(sessions: Iterable[Message]) -> Iterator[HostPort]:
    """Yield the ports of sessions, and inner ports behind TLS ports in the host's network."""
    for session in sessions:
        for port in session["ports"]:
            protocol = Protocol(port["protocol"].removeprefix("PROTOCOL_").lower())
            yield protocol, port["host_port"]
            suffix = f"_PORT_{protocol.value.upper()}_{port['container_port']}"
            for name, value in session["injected_env"].items():
                if name.endswith(suffix):
                    yield protocol, int(value)


def _problem(check: Callable[[T], object], path: T) -> str:
    try:
        check(path)
    except state_format.NewerStateError as error:
        return str(error)
    return ""


def _policy(path: Path | None) -> Policy | str:
    """Read the policy; return what is wrong with it if it is invalid."""
    try:
        return load_policy(path)
    except SettingsError as error:
        return str(error)


def _identity_facts(path: Path) -> CertificateFacts | None:
    identity = Identity.read(path)
    if identity is None:
        return None
    return CertificateFacts(identity.uri, expire_time(identity) - time.time())


def tls_facts(files: CertificateFiles | None) -> CertificateFacts | None:
    """Check the certificate for TLS ports; None if not configured. Blocks."""
    if files is None:
        return None
    path = str(files.certificate)
    key = file_facts(files.key)
    try:
        pair = files.load()
    except UnfitCertificateError as error:
        return CertificateFacts(path, 0.0, key, str(error))
    now = time.time()
    begins = beginning(pair.begin_time, now)
    return CertificateFacts(path, pair.expire_time - now, key, begins and f"{path} {begins}")


def _firewall_problems(config: AgentConfig) -> tuple[str, ...] | None:
    return tuple(Firewall(config.firewall()).problems()) if config.firewall_bridges else None


def _source_facts(config: AgentConfig) -> SourceFacts:
    known = KnownAddresses(config.public_address, config.bind_address)
    address = known.source(own_addresses())
    problem = ""
    table = NatTable(known.version)
    try:
        table.read()
    except PermissionError:  # of this process
        raise
    except OSError as error:
        problem = error.strerror or str(error)
    finally:
        table.close()
    return SourceFacts(str(ip_address(address)) if address else "", problem)


def _start(read: Callable[[], T]) -> Future[T | Unknown]:
    future: Future[T | Unknown] = Future()

    def work() -> None:
        found: T | Unknown
        try:
            found = read()
        except EngineTimeoutError:
            found = Unknown(f"no answer within {ANSWER_SECONDS:g} s")
        except OSError as error:
            found = Unknown(error.strerror or str(error))
        except (AgentError, ClientError, FirewallError, KeyError, TypeError, ValueError) as error:
            found = Unknown(str(error))
        except BaseException as defect:  # noqa: BLE001 - the waiter gets it
            future.set_exception(defect)
            return
        future.set_result(found)

    Thread(target=work, name="doctor", daemon=True).start()
    return future
