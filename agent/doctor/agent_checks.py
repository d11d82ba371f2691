"""Checks of the agent and its files. Pure."""

import stat
from collections.abc import Sequence
from pathlib import Path

from agent.doctor.facts import (
    AgentFacts,
    CertificateFacts,
    DockerdFacts,
    FileFacts,
    Finding,
    ProcessFacts,
    SourceFacts,
    bad,
    ok,
    warn,
)
from agent.network.tls_certificate import WARNED_DAYS
from agent.settings.policy import Policy

_CAPABILITIES = {"CAP_KILL": 5, "CAP_NET_ADMIN": 12}  # Capabilities and their bits
_ENOUGH_FILES = 8192
"""For 1,000 sessions with a process, a log and a few readers each, pulls and artifacts."""
_RENEWED_DAYS = 9  # Remaining days of a 30-day certificate whose renewal is a day late


def agent(agent: AgentFacts) -> Finding:
    """Check the agent's health."""
    version = f"version {agent.version} is running"
    if not agent.reconciled:
        found = f"{version}, and reconciles its records with the engine"
        return warn(
            "agent", found, "wait a moment; if it persists, see docker and the agent's log"
        )
    if agent.warnings:
        found = f"{version}, with {len(agent.warnings)} warnings: {'; '.join(agent.warnings)}"
        return warn("agent", found, "see `tiltyard-agent status`")
    return ok("agent", version)


def prepared(agent: AgentFacts, setting: int) -> Finding:
    """Containers should be prepared as long as that is not turned off."""
    if not setting:
        return ok("prepared", "turned off in the settings")
    found = f"{agent.prepared} of at most {setting} wait for a start"
    if not agent.unprepared:
        return ok("prepared", found)
    hint = "sessions of these images start more slowly, or not at all: see the cause"
    return warn("prepared", f"{found}; not those of {'; '.join(agent.unprepared)}", hint)


def agent_sock(socket: FileFacts | None) -> Finding:
    """The socket must be private: its clients can start containers."""
    if socket is None:
        return warn("agent-sock", "there is none", "`systemctl start tiltyard-agent`")
    if socket.mode & stat.S_IRWXO and socket.open_way:
        hint = "chmod 0660 it, and find out what changed it: the agent creates it so"
        return bad("agent-sock", mode_of(socket), hint)
    return ok("agent-sock", mode_of(socket))


def capabilities(process: ProcessFacts) -> Finding:
    """The agent needs two capabilities."""
    missing = [name for name, bit in _CAPABILITIES.items() if not process.capabilities >> bit & 1]
    if not missing:
        return ok("capabilities", f"it has {' and '.join(_CAPABILITIES)}")
    hint = f"AmbientCapabilities={' '.join(_CAPABILITIES)} in the agent's unit"
    return bad("capabilities", f"it lacks {' and '.join(missing)}", hint)


def agent_files(process: ProcessFacts) -> Finding:
    """The agent needs open files for all sessions."""
    text = f"it may open {process.nofile} files"
    if process.nofile >= _ENOUGH_FILES:
        return ok("agent-files", text)
    return warn("agent-files", text, "LimitNOFILE=65536 in the agent's unit")


def network(process: ProcessFacts, dockerd: DockerdFacts) -> Finding:
    """The agent and Docker Engine must see the same ports and connections."""
    if process.network is None or dockerd.network is None:
        found = "this user cannot read the network namespaces of the agent and Docker Engine"
        return warn("network", found, "run `tiltyard-agent doctor` as root")
    if process.network == dockerd.network:
        return ok("network", "the agent is in the network namespace of Docker Engine")
    return bad(
        "network",
        "the agent is in another network namespace than Docker Engine",
        "run both in the host's namespace: no PrivateNetwork in the agent's unit",
    )


def state_format(problem: str) -> Finding:
    """State that a newer agent has written must not be treated as damaged."""
    if problem:
        return bad("state-format", problem, "install the newer version again")
    return ok("state-format", "this version can read the state")


def init(problem: str | None) -> Finding:
    """The first process of containers must be executable where it is mounted from."""
    if problem is None:
        hint = "start the agent, which puts it there"
        return warn("init", "the first process of containers is not in place yet", hint)
    if problem:
        hint = (
            "no session can start: mount the disk of `state_dir` without `noexec`, let SELinux"
            " label it for files that containers execute, or install the agent again"
        )
        return bad("init", problem, hint)
    return ok("init", "the first process of containers can be executed")


def policy(path: Path | None, found: Policy | str) -> Finding:
    """The policy must be valid."""
    if isinstance(found, str):
        return bad("policy", found, "fix it, and try `tiltyard-agent config check`")
    nothing = "none: everything but the host's network and capabilities is allowed"
    return ok("policy", str(path or nothing))


def identity(listen: str, identity: CertificateFacts | None) -> Finding:
    """A host with `rpc_listen` needs a certificate that does not expire soon."""
    again = "`tiltyard-controlplane agent token --agent NAME`, and `tiltyard-agent enrol` with it"
    if identity is None:
        if not listen:
            return ok("identity", "none: it is called over its socket only")
        return warn("identity", "none: calls at rpc_listen are rejected", "`tiltyard-agent enrol`")
    if identity.left <= 0:
        return bad("identity", f"{identity.name} has expired", again)
    if identity.left < _RENEWED_DAYS * 86400:
        hint = f"check the control plane's log, which renews it; when it has expired, {again}"
        return warn("identity", _validity(identity), hint)
    return ok("identity", _validity(identity))


def tls(tls: CertificateFacts | None) -> Finding:
    """The certificate for TLS ports must not expire soon, and its key must be private."""
    if tls is None:
        return ok("tls", "none: this host accepts no sessions with TLS ports")
    if tls.problem or tls.left <= 0:
        return bad("tls", tls.problem or f"{tls.name} has ended", "renew it, with its key")
    if tls.key is not None and tls.key.mode & stat.S_IRWXO and tls.key.open_way:
        found = f"all users can read its key: mode {stat.S_IMODE(tls.key.mode):04o}"
        return bad(
            "tls", found, "chmod 0640 it, for the agent's group, and replace the certificate"
        )
    if tls.left < WARNED_DAYS * 86400:
        hint = "check what renews it; the agent loads a new one automatically"
        return warn("tls", _validity(tls), hint)
    return ok("tls", _validity(tls))


def firewall(problems: Sequence[str] | None) -> Finding:
    """Sessions must not reach the host's own services."""
    if problems is None:
        return ok("firewall", "disabled in the settings")
    if not problems:
        return ok("firewall", "the rules are in place")
    return bad("firewall", "; ".join(problems), "run `tiltyard-agent firewall apply`")


def source_address(source: SourceFacts) -> Finding:
    """Check that the first packets of a game come from the address that its players know."""
    if source.problem:
        hint = "use a kernel with nftables: the modules nf_tables, nft_nat, nft_masq"
        return warn("source-address", f"cannot use nftables: {source.problem}", hint)
    if not source.address:
        return ok("source-address", "the interface's: none has public_address")
    return ok("source-address", source.address)


def mode_of(file: FileFacts) -> str:
    """Show a file's mode and owner."""
    return f"mode {stat.S_IMODE(file.mode):04o}, owner {file.uid}"


def _validity(certificate: CertificateFacts) -> str:
    return f"{certificate.name}, for {certificate.left / 86400:.1f} days more"
