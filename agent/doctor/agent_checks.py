"""Checks of the agent and of what its operator gave it. Pure."""

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
"""Their bits, and why they are needed, below."""
_WHY = {
    "CAP_KILL": "while Docker Engine hangs, sessions outlive their lifetime and cannot be stopped",
    "CAP_NET_ADMIN": "players of a port's last session may be unable to reach its next one",
}
_APART = "apart, the agent takes ports for free that are in use, and flushes no connections"
_ENOUGH_FILES = 8192
"""For 1,000 sessions: a process, a log and a few readers each, and what is pulled and fetched."""


_RENEWED_DAYS = 9
"""Left of a certificate's thirty it has been due for renewal for a day."""


def agent(agent: AgentFacts) -> Finding:
    """Tell whether the agent is content."""
    if not agent.reconciled:
        return warn(
            "agent",
            f"version {agent.version} serves, and compares its records with the engine",
            why="it starts no sessions until that is done",
            hint="wait a moment; if it lasts, look at docker above and the agent's log",
        )
    if agent.warnings:
        return warn(
            "agent",
            f"version {agent.version} serves, with {len(agent.warnings)} warnings",
            why="; ".join(agent.warnings),
            hint="`tiltyard-agent status` shows them one by one",
        )
    return ok("agent", f"version {agent.version} serves")


def agent_sock(socket: FileFacts | None) -> Finding:
    """Who opens the agent's socket orders containers."""
    if socket is None:
        return warn(
            "agent-sock",
            "there is none",
            why="no agent serves this host",
            hint="`systemctl start tiltyard-agent`",
        )
    mode = f"mode {stat.S_IMODE(socket.mode):04o}, owner {socket.uid}"
    if socket.mode & _OTHERS and socket.open_way:
        return bad(
            "agent-sock",
            mode,
            why="everybody on this host may start containers and stop sessions",
            hint="chmod 0660 it, and look for who changed it: the agent makes it so",
        )
    return ok("agent-sock", mode)


def capabilities(process: ProcessFacts) -> Finding:
    """The agent needs two privileges of root's."""
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
    """The agent needs open files for all sessions at once."""
    text = f"it may open {process.nofile} files"
    if process.nofile >= _ENOUGH_FILES:
        return ok("agent-files", text)
    return warn(
        "agent-files",
        text,
        why="with many sessions, logs and artifacts fail, and then starts",
        hint="LimitNOFILE=65536 in the agent's unit",
    )


def network(process: ProcessFacts, dockerd: DockerdFacts) -> Finding:
    """The agent and Docker Engine must see the same ports and connections."""
    if process.network is None or dockerd.network is None:
        return warn(
            "network",
            "this user may not see the network namespaces of the agent and Docker Engine",
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
    """What a newer agent has written must not be taken for damaged."""
    if problem:
        return bad(
            "state-format",
            problem,
            why="the agent does not start; sessions run on, but nobody ends them at their time",
            hint="install the newer version again",
        )
    return ok("state-format", "this version reads what is there")


def policy(path: Path | None, problem: str) -> Finding:
    """The policy must be one that the agent takes."""
    if problem:
        return bad(
            "policy",
            problem,
            why="the agent does not start with it",
            hint="correct it; `tiltyard-agent config check` tells when it fits",
        )
    return ok("policy", str(path) if path else "none: all but the host's network may be ordered")


def identity(listen: str, identity: IdentityFacts | None) -> Finding:
    """A host that is called over a network needs a certificate that is good for a while."""
    again = "`tiltyard-controlplane agent token --agent NAME`, and `tiltyard-agent enrol` with it"
    if identity is None:
        if not listen:
            return ok("identity", "none: it is called over its socket alone")
        return warn(
            "identity",
            "there is none",
            why="nobody is answered at rpc_listen",
            hint="`tiltyard-agent enrol`",
        )
    days = identity.left / 86400
    if days <= 0:
        return bad(
            "identity",
            f"{identity.uri} has expired",
            why="the control plane does not call this host any more",
            hint=again,
        )
    if days < _RENEWED_DAYS:
        return warn(
            "identity",
            f"{identity.uri}, for {days:.1f} days more",
            why="the control plane renews it ten days before its end, and has not",
            hint=f"look at the control plane's log; at its end {again}",
        )
    return ok("identity", f"{identity.uri}, for {days:.0f} days more")


def tls(tls: TlsFacts | None) -> Finding:
    """The certificate for TLS ports must be good for a while, and its key nobody else's."""
    if tls is None:
        return ok("tls", "none: this host takes no sessions with TLS ports")
    days = tls.left / 86400
    if tls.problem or days <= 0:
        return bad(
            "tls",
            tls.problem or f"{tls.path} has ended",
            why="sessions with TLS ports are not started here, and players of others are refused "
            "once the agent is started again",
            hint="renew it, with its key",
        )
    if tls.key is not None and tls.key.mode & _OTHERS and tls.key.open_way:
        return bad(
            "tls",
            f"its key has mode {stat.S_IMODE(tls.key.mode):04o}",
            why="everybody on this host can pretend to be it",
            hint="chmod 0640 it, for the agent's group, and have another certificate issued",
        )
    if days < WARNED_DAYS:
        return warn(
            "tls",
            f"{tls.path}, for {days:.1f} days more",
            why="its renewal is late",
            hint="look at whatever renews it; the agent takes a new one by itself",
        )
    return ok("tls", f"{tls.path}, for {days:.0f} days more")


def failpoint(name: str) -> Finding:
    """A switch for tests must be off."""
    if not name:
        return ok("failpoint", "none")
    return bad(
        "failpoint",
        name,
        why="it makes sessions fail, for tests",
        hint="take `failpoint` out of the settings",
    )


def firewall(problems: Sequence[str] | None) -> Finding:
    """Sessions must not reach the host's own services."""
    if problems is None:
        return ok("firewall", "off by the settings")
    if not problems:
        return ok("firewall", "the rules are there")
    return bad(
        "firewall",
        "; ".join(problems),
        why="sessions may reach services of this host and the metadata of its cloud",
        hint="`tiltyard-agent firewall apply`, as each start of the service does",
    )
