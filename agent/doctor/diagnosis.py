"""All checks, over all facts. Pure."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from agent.doctor import agent_checks, engine_checks, host_checks
from agent.doctor.facts import AgentFacts, DiskFacts, EngineFacts, Facts, Unknown
from agent.doctor.findings import Finding, Level, bad, warn

T = TypeVar("T")

_DOCKER_DISK = {
    "why": "without free space, logs are lost, ends of sessions are missed, and starts fail",
    "hint": "remove unused images (`tiltyard-agent images`), or enlarge it",
}
_STATE_DISK = {
    "why": "without free space, starts are rejected and logs of ended sessions are not sealed",
    "hint": "shorten log_retention_days or artifact_spool_bytes, or enlarge it",
}


def diagnose(facts: Facts) -> list[Finding]:
    """Evaluate all facts; an unknown fact is a finding, too."""
    return [*_engine(facts), *_host(facts), *_agent(facts)]


def is_well(findings: Iterable[Finding]) -> bool:
    """Return whether nothing failed."""
    return all(finding.level is not Level.FAIL for finding in findings)


def _engine(facts: Facts) -> Iterator[Finding]:
    yield _checked("docker-sock", facts.docker_socket, host_checks.docker_sock)
    if isinstance(facts.engine, Unknown):
        yield bad(
            "docker",
            facts.engine.cause,
            why="no session can be started; further checks of Docker Engine are skipped",
            hint="`systemctl status docker`; if it hangs, `journalctl -u docker` and a restart "
            "with live-restore on, which sessions survive",
        )
    else:
        yield from (
            engine_checks.docker(facts.engine),
            engine_checks.docker_tcp(facts.engine, facts.dockerd),
            engine_checks.runc(facts.engine),
            engine_checks.live_restore(facts.engine),
            engine_checks.icc(facts.engine),
            engine_checks.userns_remap(facts.engine),
            engine_checks.seccomp(facts.engine),
            engine_checks.apparmor(
                facts.engine,
                in_kernel=not isinstance(facts.kernel, Unknown) and facts.kernel.apparmor,
            ),
            engine_checks.cgroups(facts.engine),
            engine_checks.log_driver(facts.engine),
        )
        if facts.engine_disk is not None:
            yield _disk("docker-disk", facts.engine_disk, **_DOCKER_DISK)
    if isinstance(facts.dockerd, Unknown):
        yield _unknown("dockerd", facts.dockerd)
    else:
        yield engine_checks.userland_proxy(facts.dockerd)
        yield engine_checks.container_files(facts.dockerd)


def _host(facts: Facts) -> Iterator[Finding]:
    yield _disk("state-disk", facts.state_disk, **_STATE_DISK)
    agent = facts.agent if isinstance(facts.agent, AgentFacts) else None
    process = agent.process if agent else None
    uid = process.uid if process else None
    yield _checked("state-dir", facts.state_dir, partial(host_checks.state_dir, uid=uid))
    yield _checked("state-format", facts.state_format, agent_checks.state_format)
    if isinstance(facts.kernel, Unknown):
        yield _unknown("kernel", facts.kernel)
    else:
        ours = facts.engine.published if isinstance(facts.engine, EngineFacts) else frozenset()
        ports = facts.config.ports()
        yield host_checks.port_range(facts.kernel, ports)
        yield host_checks.ports_in_use(
            facts.kernel, ports, ours | (agent.held_ports if agent else frozenset())
        )
        yield host_checks.conntrack(facts.kernel)
        yield host_checks.clock(facts.kernel)
        yield host_checks.boot_id(facts.kernel)
    yield _checked("firewall", facts.firewall, agent_checks.firewall)


def _agent(facts: Facts) -> Iterator[Finding]:
    yield _checked("policy", facts.policy, partial(agent_checks.policy, facts.config.policy))
    yield agent_checks.failpoint(facts.config.failpoint)
    identity = partial(agent_checks.identity, facts.config.rpc_listen)
    yield _checked("identity", facts.identity, identity)
    yield _checked("tls", facts.tls, agent_checks.tls)
    if isinstance(facts.agent_socket, Unknown):
        yield _unknown("agent-sock", facts.agent_socket)
        return
    yield agent_checks.agent_sock(facts.agent_socket)
    if facts.agent_socket is None:
        return
    if isinstance(facts.agent, Unknown):
        yield bad(
            "agent",
            facts.agent.cause,
            why="sessions keep running, but lifetimes are not enforced and none can be started",
            hint="`systemctl restart tiltyard-agent`, and check its log",
        )
        return
    yield agent_checks.agent(facts.agent)
    process = facts.agent.process
    if process is None:
        yield _unknown("agent-process", Unknown("this user has no permission to connect"))
        return
    yield agent_checks.capabilities(process)
    yield agent_checks.agent_files(process)
    if not isinstance(facts.dockerd, Unknown):
        yield agent_checks.network(process, facts.dockerd)


def _disk(check: str, disk: DiskFacts | Unknown, *, why: str, hint: str) -> Finding:
    if isinstance(disk, Unknown):
        return warn(check, f"unknown: {disk.cause}", why=why, hint="check it with `df`")
    return host_checks.disk(check, disk, why=why, hint=hint)


def _checked(name: str, facts: T | Unknown, check: Callable[[T], Finding]) -> Finding:
    """Evaluate one part, or report that it is unknown."""
    return _unknown(name, facts) if isinstance(facts, Unknown) else check(facts)


def _unknown(check: str, part: Unknown) -> Finding:
    return warn(
        check,
        f"unknown: {part.cause}",
        why="problems there are not detected",
        hint="run `tiltyard-agent doctor` as root; if that does not help, check manually",
    )
