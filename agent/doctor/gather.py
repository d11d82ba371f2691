"""Gathers the facts of a host, each part on its own thread, so that none waits for another.

The threads are daemons: one that hangs, on a disk or an engine that does not answer, does not keep
the program from ending.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from agent.client.agent_client import AgentClient, ClientError
from agent.docker import sdk as docker_sdk
from agent.docker.dockerd import peer_pid
from agent.docker.errors import Call
from agent.doctor.facts import (
    AgentFacts,
    EngineFacts,
    Facts,
    HostPort,
    IdentityFacts,
    ProcessFacts,
    TlsFacts,
    Unknown,
)
from agent.doctor.host_facts import (
    disk_facts,
    dockerd_facts,
    file_facts,
    kernel_facts,
    process_facts,
)
from agent.domain.engine import LABEL_AGENT
from agent.domain.errors import AgentError, EngineTimeoutError
from agent.network.firewall import Firewall, FirewallError
from agent.network.tls_certificate import CertificateFiles, UnfitCertificateError, beginning
from agent.rpc.identity import FILE, Identity
from agent.settings.model import AgentConfig
from agent.settings.policy import PolicyError, load_policy
from agent.state import state_format
from tiltyard.contract import Protocol

ANSWER_SECONDS = 5.0
"""Timeout of each call to the engine, all of which are cheap."""
GATHER_SECONDS = 20.0
"""Timeout of all parts: the slowest makes four calls, or runs two tools."""

T = TypeVar("T")


def gather(config: AgentConfig, *, seconds: float = GATHER_SECONDS) -> Facts:
    """Gather facts within the timeout; changes nothing."""
    deadline = time.monotonic() + seconds

    def begin(read: Callable[[], T]) -> Callable[[], T | Unknown]:
        return _begun(read, deadline, seconds)

    engine = begin(lambda: engine_facts(config.docker_socket, ANSWER_SECONDS))
    dockerd = begin(lambda: dockerd_facts(config.docker_socket))
    docker_socket = begin(lambda: file_facts(config.docker_socket))
    kernel = begin(kernel_facts)
    state_dir = begin(lambda: file_facts(config.state_dir))
    formats = begin(lambda: _state_format_problem(config.state_dir))
    state_disk = begin(lambda: disk_facts(config.state_dir))
    agent_socket = begin(lambda: file_facts(config.socket))
    agent = begin(lambda: agent_facts(config.socket))
    policy = begin(lambda: _policy_problem(config.policy))
    identity = begin(lambda: _identity_facts(config.state_dir / FILE))
    tls = begin(lambda: tls_facts(config.certificate_files()))
    firewall = begin(
        lambda: tuple(Firewall(config.firewall()).problems()) if config.firewall_bridges else None
    )
    answer = engine()
    root = None if isinstance(answer, Unknown) else answer.data_root
    engine_disk = begin(lambda: None if root is None else disk_facts(root))
    return Facts(
        config=config,
        docker_socket=docker_socket(),
        engine=answer,
        dockerd=dockerd(),
        engine_disk=engine_disk(),
        kernel=kernel(),
        state_dir=state_dir(),
        state_format=formats(),
        state_disk=state_disk(),
        agent_socket=agent_socket(),
        agent=agent(),
        policy=policy(),
        identity=identity(),
        tls=tls(),
        firewall=firewall(),
    )


def engine_facts(socket: Path, seconds: float) -> EngineFacts:
    """Query Docker Engine, with a timeout per call.

    Raises:
        AgentError: It does not answer.
    """
    clients = docker_sdk.Clients(str(socket))
    try:
        with docker_sdk.translated(Call("info"), lambda: None):
            client = clients.mine(docker_sdk.MIN_API, seconds)
            version = dict(client.version(api_version=False))
            info = dict(client.info())
            ours = map(dict, client.containers(filters={"label": LABEL_AGENT}))
            return EngineFacts(
                api=str(version["ApiVersion"]),
                runc=docker_sdk.component(version, "runc"),
                info=info,
                data_root=Path(info["DockerRootDir"]),
                kept_apart=docker_sdk.keeps_apart(client),
                published=frozenset(
                    (Protocol(port["Type"]), int(port["PublicPort"]))
                    for container in ours
                    for port in container.get("Ports") or ()
                    if "PublicPort" in port and port["Type"] in {"tcp", "udp"}
                ),
            )
    finally:
        clients.close()


def agent_facts(socket: Path) -> AgentFacts:
    """Query the agent, and the kernel about its process.

    Raises:
        ClientError: It does not answer.
    """
    with AgentClient(socket) as agent:
        answer = agent.host()
        held = frozenset(_held_ports(agent))
    return AgentFacts(
        version=answer["host"]["version"],
        reconciled=answer["reconciled"],
        warnings=tuple(answer["host"]["warnings"]),
        held_ports=held,
        process=_process_behind(socket),
    )


def _process_behind(socket: Path) -> ProcessFacts | None:
    pid = peer_pid(str(socket))
    with contextlib.suppress(OSError):  # it may be gone, or of another PID namespace
        return None if pid is None else process_facts(pid)
    return None


def _held_ports(agent: AgentClient) -> Iterator[HostPort]:
    """The ports of sessions, and those that are in the host's network behind TLS ports."""
    for session in agent.sessions(live_only=True):
        for port in session["ports"]:
            protocol = Protocol(port["protocol"].removeprefix("PROTOCOL_").lower())
            yield protocol, port["host_port"]
            suffix = f"_PORT_{protocol.value.upper()}_{port['container_port']}"
            for name, value in session["injected_env"].items():
                if name.endswith(suffix):
                    yield protocol, int(value)


def _policy_problem(path: Path | None) -> str:
    try:
        load_policy(path)
    except PolicyError as error:
        return str(error)
    return ""


def _state_format_problem(path: Path) -> str:
    try:
        state_format.check(path)
    except state_format.NewerStateError as error:
        return str(error)
    return ""


def _identity_facts(path: Path) -> IdentityFacts | None:
    identity = Identity.read(path)
    if identity is None:
        return None
    return IdentityFacts(identity.uri, identity.expire_time - time.time())


def tls_facts(files: CertificateFiles | None) -> TlsFacts | None:
    """The certificate for TLS ports; None without one in the settings. Blocks."""
    if files is None:
        return None
    path, key = str(files.certificate), file_facts(files.key)
    try:
        pair = files.load()
    except UnfitCertificateError as error:
        return TlsFacts(path, 0.0, key, str(error))
    now = time.time()
    begins = beginning(pair.begin_time, now)
    return TlsFacts(path, pair.expire_time - now, key, begins and f"{path} {begins}")


def _begun(read: Callable[[], T], deadline: float, seconds: float) -> Callable[[], T | Unknown]:
    """Start reading on a thread, and return a function that waits for the result."""
    future: Future[T | Unknown] = Future()

    def work() -> None:
        try:
            future.set_result(_read(read))
        except BaseException as defect:  # noqa: BLE001 - the waiter gets it
            future.set_exception(defect)

    Thread(target=work, name="doctor", daemon=True).start()

    def result() -> T | Unknown:
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return Unknown(f"no answer within {seconds:g} s")

    return result


def _read(read: Callable[[], T]) -> T | Unknown:
    try:
        return read()
    except EngineTimeoutError:
        return Unknown(f"no answer within {ANSWER_SECONDS:g} s")
    except OSError as error:
        return Unknown(error.strerror or str(error))
    except (AgentError, ClientError, FirewallError, KeyError, TypeError, ValueError) as error:
        return Unknown(str(error))
