"""Checks of the agent and of its files. Pure."""

import stat
from collections.abc import Sequence
from pathlib import Path

from agent.doctor.facts import (
    AgentFacts,
    DockerdFacts,
    FileFacts,
    IdentityFacts,
    ProcessFacts,
    TlsFacts,
)
from agent.doctor.findings import Finding, bad, ok, warn
from agent.network.tls_certificate import WARNED_DAYS

_OTHERS = stat.S_IRWXO
_CAPABILITIES = {"CAP_KILL": 5, "CAP_NET_ADMIN": 12}
"""Capabilities and their bits; `_WHY` has the reasons."""
_WHY = {
    "CAP_KILL": "while Docker Engine hangs, sessions outlive their lifetime and cannot be stopped",
    "CAP_NET_ADMIN": "players of a port's last session may be unable to reach its next one",
}
_APART = "the agent cannot see which ports are in use, nor flush connection tracking"
_ENOUGH_FILES = 8192
"""For 1,000 sessions: a process, a log and a few readers each, pulls and artifacts."""


_RENEWED_DAYS = 9
"""Of a certificate's thirty; its renewal is a day late then."""


def agent(agent: AgentFacts) -> Finding:
    """Check the agent's health."""
    if not agent.reconciled:
        return warn(
            "agent",
            f"version {agent.version} is running, and reconciles its records with the engine",
            why="it starts no sessions until that is done",
            hint="wait a moment; if it persists, check docker above and the agent's log",
        )
    if agent.warnings:
        return warn(
            "agent",
            f"version {agent.version} is running, with {len(agent.warnings)} warnings",
            why="; ".join(agent.warnings),
            hint="see `tiltyard-agent status`",
        )
    return ok("agent", f"version {agent.version} is running")


def agent_sock(socket: FileFacts | None) -> Finding:
    """Clients of the agent's socket can start containers."""
    if socket is None:
        return warn(
            "agent-sock",
            "there is none",
            why="no agent is running on this host",
            hint="`systemctl start tiltyard-agent`",
        )
    mode = f"mode {stat.S_IMODE(socket.mode):04o}, owner {socket.uid}"
    if socket.mode & _OTHERS and socket.open_way:
        return bad(
            "agent-sock",
            mode,
            why="all users of this host can start containers and stop sessions",
            hint="chmod 0660 it, and find out what changed it: the agent creates it so",
        )
    return ok("agent-sock", mode)


def capabilities(process: ProcessFacts) -> Finding:
    """The agent needs two capabilities."""
    missing = [name for name, bit in _CAPABILITIES.items() if not process.capabilities >> bit & 1]
    if not missing:
        return ok("capabilities", f"it has {' and '.join(_CAPABILITIES)}")
    return bad(
        "capabilities",
        f"it lacks {' and '.join(missing)}",
        why="; ".join(_WHY[name] for name in missing),
        hint=f"AmbientCapabilities={' '.join(_CAPABILITIES)} in the agent's unit",
    )


def agent_files(process: ProcessFacts) -> Finding:
    """The agent needs open files for all sessions."""
    text = f"it may open {process.nofile} files"
    if process.nofile >= _ENOUGH_FILES:
        return ok("agent-files", text)
    return warn(
        "agent-files",
        text,
        why="with many sessions, logs, artifacts and starts fail",
        hint="LimitNOFILE=65536 in the agent's unit",
    )


def network(process: ProcessFacts, dockerd: DockerdFacts) -> Finding:
    """The agent and Docker Engine must see the same ports and connections."""
    if process.network is None or dockerd.network is None:
        return warn(
            "network",
            "this user cannot read the network namespaces of the agent and Docker Engine",
            why=_APART,
            hint="run `tiltyard-agent doctor` as root",
        )
    if process.network == dockerd.network:
        return ok("network", "the agent is in the network namespace of Docker Engine")
    return bad(
        "network",
        "the agent is in another network namespace than Docker Engine",
        why=_APART,
        hint="run both in the host's namespace: no PrivateNetwork in the agent's unit",
    )


def state_format(problem: str) -> Finding:
    """State that a newer agent has written must not be treated as damaged."""
    if problem:
        return bad(
            "state-format",
            problem,
            why="the agent does not start; sessions keep running, but lifetimes are not enforced",
            hint="install the newer version again",
        )
    return ok("state-format", "this version can read the state")


def policy(path: Path | None, problem: str) -> Finding:
    """The policy must be valid."""
    if problem:
        return bad(
            "policy",
            problem,
            why="the agent does not start with it",
            hint="correct it, and check it with `tiltyard-agent config check`",
        )
    allowed = "none: everything but the host's network is allowed"
    return ok("policy", str(path) if path else allowed)


def identity(listen: str, identity: IdentityFacts | None) -> Finding:
    """A host that is called over a network needs a certificate that does not expire soon."""
    again = "`tiltyard-controlplane agent token --agent NAME`, and `tiltyard-agent enrol` with it"
    if identity is None:
        if not listen:
            return ok("identity", "none: it is called over its socket only")
        return warn(
            "identity",
            "there is none",
            why="calls at rpc_listen are rejected",
            hint="`tiltyard-agent enrol`",
        )
    days = identity.left / 86400
    if days <= 0:
        return bad(
            "identity",
            f"{identity.uri} has expired",
            why="the control plane can no longer call this host",
            hint=again,
        )
    if days < _RENEWED_DAYS:
        return warn(
            "identity",
            f"{identity.uri}, for {days:.1f} days more",
            why="the control plane should have renewed it ten days before it expires",
            hint=f"check the control plane's log; when it has expired, {again}",
        )
    return ok("identity", f"{identity.uri}, for {days:.0f} days more")


def tls(tls: TlsFacts | None) -> Finding:
    """The certificate for TLS ports must not expire soon, and its key must be private."""
    if tls is None:
        return ok("tls", "none: this host accepts no sessions with TLS ports")
    days = tls.left / 86400
    if tls.problem or days <= 0:
        return bad(
            "tls",
            tls.problem or f"{tls.path} has ended",
            why="sessions with TLS ports do not start here, and connections to running ones fail "
            "after a restart of the agent",
            hint="renew it, with its key",
        )
    if tls.key is not None and tls.key.mode & _OTHERS and tls.key.open_way:
        return bad(
            "tls",
            f"its key has mode {stat.S_IMODE(tls.key.mode):04o}",
            why="all users of this host can impersonate it",
            hint="chmod 0640 it, for the agent's group, and replace the certificate",
        )
    if days < WARNED_DAYS:
        return warn(
            "tls",
            f"{tls.path}, for {days:.1f} days more",
            why="its renewal is late",
            hint="check what renews it; the agent loads a new one automatically",
        )
    return ok("tls", f"{tls.path}, for {days:.0f} days more")


def failpoint(name: str) -> Finding:
    """The setting for tests must be off."""
    if not name:
        return ok("failpoint", "none")
    return bad(
        "failpoint",
        name,
        why="it is for tests and makes sessions fail",
        hint="remove `failpoint` from the settings",
    )


def firewall(problems: Sequence[str] | None) -> Finding:
    """Sessions must not reach the host's own services."""
    if problems is None:
        return ok("firewall", "disabled in the settings")
    if not problems:
        return ok("firewall", "the rules are in place")
    return bad(
        "firewall",
        "; ".join(problems),
        why="sessions can reach services of this host and the cloud's metadata service",
        hint="run `tiltyard-agent firewall apply`, as each start of the service does",
    )
