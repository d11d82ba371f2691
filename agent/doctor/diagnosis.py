"""Runs all checks. Pure."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from agent.doctor import agent_checks, engine_checks, host_checks
from agent.doctor.facts import (
    AgentFacts,
    EngineFacts,
    Facts,
    Finding,
    KernelFacts,
    Unknown,
    bad,
    warn,
)
from agent.settings.policy import Policy

T = TypeVar("T")

_DOCKER_DISK = "remove unused images (`tiltyard-agent images`), or enlarge it"
_STATE_DISK = "shorten log_retention_days or artifact_spool_bytes, or enlarge it"
_OF_ENGINE = (
    engine_checks.docker,
    engine_checks.runc,
    engine_checks.live_restore,
    engine_checks.icc,
    engine_checks.seccomp,
    engine_checks.apparmor,
    engine_checks.cgroups,
)


def diagnose(facts: Facts) -> list[Finding]:
    """Evaluate all facts; an unknown fact is also a finding."""
    return [*_engine(facts), *_host(facts), *_agent(facts)]


def _engine(facts: Facts) -> Iterator[Finding]:
    yield _evaluate("docker-sock", facts.docker_socket, host_checks.docker_sock)
    if isinstance(facts.engine, Unknown):
        yield bad("docker", facts.engine.cause, "see `journalctl -u docker`, and restart it")
    else:
        for check in _OF_ENGINE:
            yield check(facts.engine)
        policy = facts.policy if isinstance(facts.policy, Policy) else Policy()
        yield engine_checks.userns_remap(facts.engine, policy.capabilities)
        yield engine_checks.docker_tcp(facts.engine, facts.dockerd)
        if facts.engine_disk is not None:
            disk = partial(host_checks.disk, "docker-disk", hint=_DOCKER_DISK)
            yield _evaluate("docker-disk", facts.engine_disk, disk)
        if facts.image_disk is not None:
            disk = partial(host_checks.disk, "image-disk", hint=_DOCKER_DISK)
            yield _evaluate("image-disk", facts.image_disk, disk)
    if isinstance(facts.dockerd, Unknown):
        yield _unknown("dockerd", facts.dockerd)
    else:
        yield engine_checks.userland_proxy(facts.dockerd)
        yield engine_checks.container_files(facts.dockerd)


def _host(facts: Facts) -> Iterator[Finding]:
    disk = partial(host_checks.disk, "state-disk", hint=_STATE_DISK)
    yield _evaluate("state-disk", facts.state_disk, disk)
    agent = facts.agent if isinstance(facts.agent, AgentFacts) else None
    uid = agent.process.uid if agent and agent.process else None
    yield _evaluate("state-dir", facts.state_dir, partial(host_checks.state_dir, uid=uid))
    yield _evaluate("state-format", facts.state_format, agent_checks.state_format)
    yield _evaluate("init", facts.init, agent_checks.init)
    if isinstance(facts.kernel, Unknown):
        yield _unknown("kernel", facts.kernel)
    else:
        ours = facts.engine.published if isinstance(facts.engine, EngineFacts) else frozenset()
        ours |= agent.held_ports if agent else frozenset()
        ports = facts.config.ports()
        yield host_checks.port_range(facts.kernel, ports)
        yield host_checks.ports_in_use(facts.kernel, ports, ours)
        yield host_checks.conntrack(facts.kernel, facts.config.max_sessions)
        yield _capacities(facts, facts.kernel)
        if isinstance(facts.engine, EngineFacts):
            yield host_checks.mtu(facts.engine.bridge_mtu, facts.kernel)
        yield host_checks.clock(facts.kernel)
    if facts.user_counts is not None:
        yield _evaluate("user-counts", facts.user_counts, host_checks.user_counts)
    yield _evaluate("firewall", facts.firewall, agent_checks.firewall)
    yield _evaluate("source-address", facts.source, agent_checks.source_address)


def _capacities(facts: Facts, kernel: KernelFacts) -> Finding:
    dockerd = facts.dockerd
    return host_checks.capacities(
        kernel,
        facts.config.max_sessions,
        is_remapped=isinstance(facts.engine, EngineFacts) and engine_checks.remaps(facts.engine),
        pending_signals=None if isinstance(dockerd, Unknown) else dockerd.pending_signals,
    )


def _agent(facts: Facts) -> Iterator[Finding]:
    yield _evaluate("policy", facts.policy, partial(agent_checks.policy, facts.config.policy))
    identity = partial(agent_checks.identity, facts.config.rpc_listen)
    yield _evaluate("identity", facts.identity, identity)
    yield _evaluate("tls", facts.tls, agent_checks.tls)
    yield _evaluate("agent-sock", facts.agent_socket, agent_checks.agent_sock)
    if facts.agent_socket is None or isinstance(facts.agent_socket, Unknown):
        return
    if isinstance(facts.agent, Unknown):
        hint = "`systemctl restart tiltyard-agent`, and check its log"
        yield bad("agent", facts.agent.cause, hint)
        return
    yield agent_checks.agent(facts.agent)
    yield agent_checks.prepared(facts.agent, facts.config.prepared)
    process = facts.agent.process
    if process is None:
        yield _unknown("agent-process", Unknown("this user has no permission to connect"))
        return
    yield agent_checks.capabilities(process)
    yield agent_checks.agent_files(process)
    if not isinstance(facts.dockerd, Unknown):
        yield agent_checks.network(process, facts.dockerd)


def _evaluate(name: str, facts: T | Unknown, check: Callable[[T], Finding]) -> Finding:
    return _unknown(name, facts) if isinstance(facts, Unknown) else check(facts)


def _unknown(check: str, part: Unknown) -> Finding:
    hint = "run `tiltyard-agent doctor` as root; if that does not help, check manually"
    return warn(check, f"unknown: {part.cause}", hint)
