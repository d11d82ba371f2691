"""Checks of what the settings refer to: files, folders, addresses and ports. Blocks.

The checks of `doctor` that need neither a running agent nor an engine.
"""

import stat
from collections.abc import Iterator

from agent.doctor import agent_checks, host_checks
from agent.doctor.findings import Finding, Level
from agent.doctor.gather import tls_facts
from agent.doctor.host_facts import kernel_facts
from agent.settings.model import AgentConfig
from agent.settings.policy import PolicyError, load_policy
from tiltyard.runtime.settings import environment_checks
from tiltyard.runtime.settings.addresses import host_and_port
from tiltyard.runtime.settings.mistakes import Mistake


def needed(config: AgentConfig) -> Iterator[Mistake]:
    """Yield mistakes that keep the agent from starting."""
    try:
        load_policy(config.policy)
    except PolicyError as error:
        yield from error.mistakes


def all_mistakes(config: AgentConfig) -> Iterator[Mistake]:
    """Yield these and warnings."""
    yield from needed(config)
    yield from environment_checks.folder("state_dir", config.state_dir)
    yield from environment_checks.folder("socket", config.socket.parent)
    if not config.docker_socket.exists() or not stat.S_ISSOCK(config.docker_socket.stat().st_mode):
        problem = f"there is no socket {config.docker_socket}"
        hint = "start Docker Engine, or name the socket that it serves"
        yield Mistake(("docker_socket",), problem, hint, is_warning=True)
    yield from environment_checks.address("public_address", config.public_address)
    yield from environment_checks.address("bind_address", config.bind_address)
    yield from _ports(config)
    tls = agent_checks.tls(tls_facts(config.certificate_files()))
    yield from _mistakes("tls_certificate", tls, is_fatal=tls.level is Level.FAIL)
    yield from _mistakes("failpoint", agent_checks.failpoint(config.failpoint))


def _ports(config: AgentConfig) -> Iterator[Mistake]:
    try:
        kernel = kernel_facts()
    except (OSError, ValueError):  # where /proc is not there
        return
    yield from _mistakes("port_range", host_checks.port_range(kernel, config.ports()))
    addresses = {key: getattr(config, key) for key in LISTENERS}
    listeners = {key: host_and_port(text) for key, text in addresses.items() if text}
    first, last = config.ports()
    for key, (host, port) in listeners.items():
        yield from environment_checks.address(key, host)
        if first <= port <= last:
            problem = f"port {port} is within port_range, {config.port_range}"
            yield Mistake((key,), problem, "use another, since sessions need it")
    yield from environment_checks.listeners(listeners)


LISTENERS = ("rpc_listen", "metrics_listen")
"""Settings with a listening address of the agent."""


def _mistakes(key: str, finding: Finding, *, is_fatal: bool = False) -> Iterator[Mistake]:
    if finding.level is not Level.OK:
        problem = f"{finding.found}: {finding.why}"
        yield Mistake((key,), problem, finding.hint, is_warning=not is_fatal)
