import dataclasses
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.doctor import facts
from agent.doctor.diagnosis import diagnose
from agent.domain.host.kernel_needs import INOTIFY_INSTANCES, NEEDS, PENDING_SIGNALS
from agent.settings.model import AgentConfig
from agent.settings.policy import Policy
from tests.support.agent.scripted_engine import INFO
from tiltyard.contract import Capability, Protocol

GIB = 2**30
ROOT = Path(__file__).resolve().parents[4]

SOUND = facts.Facts(
    config=AgentConfig(
        public_address="192.0.2.1", policy=Path("/etc/tiltyard/policy.toml"), prepared=16
    ),
    docker_socket=facts.FileFacts(stat.S_IFSOCK | 0o660, 0, open_way=True),
    engine=facts.EngineFacts(
        api="1.47",
        runc="1.4.3",
        info=INFO
        | {
            "ServerVersion": "28.5.2",
            "KernelVersion": "6.12.1",
            "CgroupVersion": "2",
            "CgroupDriver": "systemd",
            "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=userns"],
        },
        data_root=Path("/var/lib/docker"),
        image_root=Path("/var/lib/containerd"),
        kept_apart=True,
        published=frozenset({(Protocol.UDP, 20001)}),
        bridge_mtu=1500,
    ),
    dockerd=facts.DockerdFacts({"userland-proxy": False}, 1_048_576, "net:[1]", 95_000),
    engine_disk=facts.DiskFacts("/docker", 100 * GIB, 50 * GIB, 1000, 900, read_only=False),
    image_disk=facts.DiskFacts("/containerd", 100 * GIB, 50 * GIB, 1000, 900, read_only=False),
    kernel=facts.KernelFacts(
        local_ports=(32768, 60999),
        reserved_ports=frozenset(),
        bound_ports=frozenset(
            {(Protocol.UDP, 20001), (Protocol.TCP, 20002), (Protocol.TCP, 22), (Protocol.UDP, 53)}
        ),
        flows=1000,
        max_flows=262_144,
        clock_synchronised=True,
        settings={need.setting: need.least(1000) for need in NEEDS},
        route_mtu=1500,
    ),
    user_counts=(facts.UserCount(1000, INOTIFY_INSTANCES, 102, 128, "1234", 100),),
    state_dir=facts.FileFacts(stat.S_IFDIR | 0o700, 990, open_way=True),
    state_format="",
    init="",
    state_disk=facts.DiskFacts("/var/lib", 100 * GIB, 50 * GIB, 1000, 900, read_only=False),
    agent_socket=facts.FileFacts(stat.S_IFSOCK | 0o660, 990, open_way=True),
    agent=facts.AgentFacts(
        version="1.0",
        reconciled=True,
        warnings=(),
        held_ports=frozenset({(Protocol.TCP, 20002)}),
        process=facts.ProcessFacts(990, 1 << 5 | 1 << 12, 65536, "net:[1]"),
    ),
    policy=Policy(),
    identity=facts.CertificateFacts("tiltyard://agent/one", 29 * 86400.0),
    tls=facts.CertificateFacts(
        "/etc/tls.pem", 60 * 86400.0, facts.FileFacts(stat.S_IFREG | 0o640, 0, open_way=True)
    ),
    firewall=(),
    source=facts.SourceFacts("192.0.2.1"),
)


def changed(host: Any, path: str, value: Any) -> Any:
    """Replace the fact at path `a.b.c`; the last part may be a key of a mapping."""
    name, _, rest = path.partition(".")
    if isinstance(host, dict):
        return {**host, name: value}
    inner = changed(getattr(host, name), rest, value) if rest else value
    if isinstance(host, AgentConfig):
        return host.model_copy(update={name: inner})
    return dataclasses.replace(host, **{name: inner})


def found(host: facts.Facts, check: str) -> facts.Finding:
    (finding,) = [each for each in diagnose(host) if each.check == check]
    return finding


def test_healthy_host_has_no_problems() -> None:
    findings = diagnose(SOUND)
    assert [finding for finding in findings if finding.level is not facts.Level.OK] == []
    assert len({finding.check for finding in findings}) == len(findings)


OK = facts.Level.OK
WARN = facts.Level.WARN
FAIL = facts.Level.FAIL
UNREACHABLE = facts.FileFacts(stat.S_IFSOCK | 0o666, 0, open_way=False)
NEIGHBOURS = "net.ipv4.neigh.default.gc_thresh3"
KEYS = "kernel.keys.maxkeys"
WATCHERS = facts.UserCount(5, INOTIFY_INSTANCES, 103, 128, "77", 99)
QUEUED = facts.UserCount(5, PENDING_SIGNALS, 10, 10)
OPEN_HOSTS = {"hosts": ["fd://", "tcp://0.0.0.0:2375"]}
SECCOMP = ["name=apparmor", "name=userns"]
SETUID = Policy(capabilities=frozenset({Capability.SETUID}))
UNCONFINED = ["name=seccomp,profile=unconfined"]
EIGHT = frozenset((Protocol.TCP, port) for port in range(20001, 20009))
IN_USE = "20001/tcp, 20003/tcp, 20004/tcp, 20005/tcp, 20006/tcp and 2 more"
HTTP = "WARNING: API is accessible on http://0.0.0.0:2375 without encryption.\n     Access to"


@pytest.mark.parametrize(
    ("path", "value", "check", "level", "text"),
    [
        ("docker_socket", None, "docker-sock", FAIL, "there is none"),
        ("docker_socket.mode", 0o666, "docker-sock", FAIL, "open to all users"),
        ("docker_socket", UNREACHABLE, "docker-sock", OK, "0666"),
        ("docker_socket.mode", 0o664, "docker-sock", OK, "0664"),
        ("docker_socket.uid", 1000, "docker-sock", WARN, "owner 1000"),
        ("engine", facts.Unknown("connection refused"), "docker", FAIL, "connection refused"),
        ("engine.info.Warnings", [HTTP], "docker-tcp", FAIL, "on http://0.0.0.0:2375$"),
        ("dockerd.settings", OPEN_HOSTS, "docker-tcp", FAIL, "on http://0.0.0.0:2375$"),
        ("dockerd", facts.Unknown("cannot be seen"), "docker-tcp", OK, "no TCP port"),
        ("engine.info.LiveRestoreEnabled", False, "live-restore", FAIL, "off"),
        ("engine.kept_apart", False, "icc", WARN, "on"),
        ("engine.info.SecurityOptions", SECCOMP, "seccomp", FAIL, "there is none"),
        ("engine.info.SecurityOptions", None, "seccomp", FAIL, "there is none"),
        ("engine.info.SecurityOptions", UNCONFINED, "seccomp", FAIL, "unconfined"),
        ("engine.info.SecurityOptions", ["name=seccomp"], "userns-remap", WARN, "off"),
        ("engine.info.SecurityOptions", ["name=rootless"], "userns-remap", OK, "on"),
        ("policy", SETUID, "userns-remap", OK, "on"),
        ("engine.info.SecurityOptions", ["name=selinux"], "apparmor", OK, "selinux"),
        ("engine.info.SecurityOptions", [], "apparmor", WARN, "uses neither"),
        ("engine.info.SwapLimit", False, "cgroups", WARN, "version 2, driver systemd"),
        ("engine.info.MemoryLimit", False, "cgroups", FAIL, "version 2"),
        ("image_disk.free_bytes", 2 * GIB, "image-disk", FAIL, r"/containerd: 2 GiB free \(2%\)"),
        ("engine_disk.read_only", True, "docker-disk", FAIL, "read-only"),
        ("engine_disk.free_bytes", 5 * GIB, "docker-disk", WARN, r"5 GiB free \(5%\)"),
        ("engine_disk.free_bytes", 2 * GIB, "docker-disk", FAIL, r"2 GiB free \(2%\)"),
        ("engine_disk.free_inodes", 50, "docker-disk", WARN, "5% of inodes"),
        ("engine_disk.free_inodes", 0, "docker-disk", FAIL, "0% of inodes"),
        ("state_disk.total_bytes", 1000 * GIB, "state-disk", OK, r"50 GiB free \(5%\)"),
        ("state_disk.total_inodes", 0, "state-disk", OK, "100% of inodes"),
        ("dockerd.settings", {}, "userland-proxy", WARN, "on"),
        ("dockerd.settings", {"userland-proxy": "false"}, "userland-proxy", OK, "off"),
        ("dockerd.nofile", 20_000, "container-files", WARN, "20000"),
        ("dockerd.nofile", None, "container-files", OK, "unknown"),
        ("dockerd.network", "net:[2]", "network", FAIL, "another network namespace"),
        ("dockerd.network", None, "network", WARN, "cannot read the network"),
        ("state_dir", None, "state-dir", WARN, "not exist yet"),
        ("state_dir.mode", stat.S_IFREG | 0o600, "state-dir", FAIL, "not a directory"),
        ("state_dir.mode", stat.S_IFDIR | 0o750, "state-dir", FAIL, "0750"),
        ("state_dir.uid", 0, "state-dir", FAIL, "owner 0, and the agent is user 990"),
        ("agent.prepared", 3, "prepared", OK, "3 of at most 16 wait for a start"),
        ("agent.unprepared", ("game: cannot run",), "prepared", WARN, "not those of game: cannot"),
        ("config.prepared", 0, "prepared", OK, "turned off in the settings"),
        ("init", None, "init", WARN, "is not in place yet"),
        ("init", "cannot execute it", "init", FAIL, "cannot execute it"),
        ("init", facts.Unknown("Permission denied"), "init", WARN, "Permission denied"),
        ("state_format", "a newer version has run", "state-format", FAIL, "a newer version"),
        ("kernel.local_ports", (29000, 60999), "port-range", WARN, "^1001 ports of 20000-30000"),
        ("kernel.local_ports", (30001, 60999), "port-range", OK, "apart"),
        ("kernel.bound_ports", EIGHT, "ports-in-use", WARN, IN_USE),
        ("kernel.bound_ports", frozenset({(Protocol.UDP, 20002)}), "ports-in-use", WARN, "/udp"),
        ("kernel.flows", 200_000, "conntrack", WARN, "76%"),
        ("kernel.flows", 262_144, "conntrack", FAIL, "100%"),
        ("kernel.max_flows", 32_768, "conntrack", WARN, "32768"),
        ("kernel.flows", None, "conntrack", OK, "not active yet"),
        ("config.max_sessions", 100, "capacities", OK, "suffice for 100 sessions"),
        ("kernel.settings", {}, "capacities", OK, "suffice for 1000 sessions"),
        ("kernel.settings", {NEIGHBOURS: 2511}, "capacities", WARN, "suffices for 999 of 1000"),
        ("kernel.settings", {NEIGHBOURS: 100}, "capacities", WARN, "suffices for 0 of 1000"),
        ("kernel.settings", {KEYS: 200}, "capacities", WARN, "for 100 of 1000 sessions, beyond"),
        ("dockerd.pending_signals", 1024, "capacities", WARN, "LimitSIGPENDING .* for 0 of 1000"),
        ("dockerd", facts.Unknown("cannot be seen"), "capacities", OK, "suffice for 1000"),
        ("user_counts", (), "user-counts", OK, "no user has 80%"),
        ("user_counts", (WATCHERS,), "user-counts", WARN, "user 5 has 103 of 128 by fs"),
        ("user_counts", (WATCHERS,), "user-counts", WARN, ", 99 of them in session 77; when"),
        (
            "user_counts",
            (QUEUED,),
            "user-counts",
            WARN,
            "10 of 10 by LimitSIGPENDING .*; when",
        ),
        ("user_counts", facts.Unknown("hidden"), "user-counts", WARN, "unknown: hidden"),
        ("kernel.route_mtu", 1420, "mtu", WARN, "^1500 bytes on the engine's bridge, 1420 on"),
        ("kernel.route_mtu", 9000, "mtu", OK, "1500 bytes"),
        ("kernel.route_mtu", None, "mtu", OK, "1500 bytes"),
        ("kernel.clock_synchronised", False, "clock", WARN, "not synchronised"),
        ("firewall", ("IPv4: INPUT", "IPv6: INPUT"), "firewall", FAIL, "IPv4: INPUT; IPv6"),
        ("firewall", None, "firewall", OK, "disabled"),
        ("policy", "cannot read it", "policy", FAIL, "cannot read it"),
        ("config.policy", None, "policy", OK, "everything but the host's network"),
        ("identity", None, "identity", OK, "over its socket only"),
        ("identity.left", 8.5 * 86400, "identity", WARN, "for 8.5 days more"),
        ("identity.left", 0.0, "identity", FAIL, "has expired"),
        ("tls", None, "tls", OK, "no sessions with TLS ports"),
        ("tls.problem", "no key", "tls", FAIL, "no key"),
        ("tls.left", -1.0, "tls", FAIL, "has ended"),
        ("tls.left", 13.5 * 86400, "tls", WARN, "for 13.5 days more"),
        ("tls.key.mode", stat.S_IFREG | 0o644, "tls", FAIL, "mode 0644"),
        ("agent_socket", None, "agent-sock", WARN, "there is none"),
        ("agent_socket.mode", stat.S_IFSOCK | 0o666, "agent-sock", FAIL, "0666"),
        ("agent", facts.Unknown("it hangs"), "agent", FAIL, "it hangs"),
        ("agent.reconciled", False, "agent", WARN, "reconciles its records"),
        ("agent.warnings", ("one", "two"), "agent", WARN, "2 warnings"),
        ("agent.process", None, "agent-process", WARN, "no permission to connect"),
        ("agent.process.capabilities", 1 << 5, "capabilities", FAIL, "lacks CAP_NET_ADMIN$"),
        ("agent.process.capabilities", 1 << 12, "capabilities", FAIL, "lacks CAP_KILL$"),
        ("agent.process.nofile", 1024, "agent-files", WARN, "1024"),
        ("agent.process.network", None, "network", WARN, "cannot read the network"),
    ],
)
def test_finds_problems(path: str, value: Any, check: str, level: facts.Level, text: str) -> None:
    finding = found(changed(SOUND, path, value), check)
    assert finding.level is level
    assert re.search(text, finding.found), finding.found
    assert bool(finding.hint) == (level is not facts.Level.OK)


def test_keys_are_scarce_only_for_remapped_users() -> None:
    host = changed(SOUND, "kernel.settings", {KEYS: 200})
    host = changed(host, "engine.info.SecurityOptions", ["name=seccomp"])
    assert found(host, "capacities").level is OK


def test_advice_on_capacities_is_enough() -> None:
    host = changed(SOUND, "kernel.settings", {need.setting: 1 for need in NEEDS})
    advised = re.findall(r"(\S+) = (\d+)", found(host, "capacities").hint)
    assert len(advised) == len(NEEDS)
    again = changed(SOUND, "kernel.settings", {name: int(value) for name, value in advised})
    assert found(again, "capacities").level is OK


def test_users_are_not_counted_without_an_agent() -> None:
    host = changed(SOUND, "user_counts", None)
    assert "user-counts" not in {finding.check for finding in diagnose(host)}


def test_host_with_rpc_listen_must_be_enrolled() -> None:
    host = changed(changed(SOUND, "identity", None), "config.rpc_listen", "0.0.0.0:7444")
    assert found(host, "identity").level is facts.Level.WARN


def test_reserved_ports_may_overlap_ephemeral_range() -> None:
    host = changed(SOUND, "kernel.local_ports", (25000, 60999))
    host = changed(host, "kernel.reserved_ports", frozenset(range(20000, 30001)))
    assert found(host, "port-range").level is facts.Level.OK
    host = changed(host, "kernel.reserved_ports", frozenset(range(20000, 30000)))
    assert found(host, "port-range").found.startswith("1 ports")


def test_checks_the_rest_without_engine() -> None:
    host = changed(SOUND, "engine", facts.Unknown("gone"))
    host = dataclasses.replace(host, engine_disk=None, dockerd=facts.Unknown("gone"))
    checks = {finding.check for finding in diagnose(host)}
    assert {"docker", "dockerd", "state-disk", "ports-in-use", "agent", "firewall"} <= checks
    assert not checks & {"runc", "live-restore", "docker-disk", "userland-proxy", "network"}


def test_reports_every_unknown_fact() -> None:
    names = {field.name for field in dataclasses.fields(facts.Facts)} - {"config"}
    unknown: dict[str, Any] = {name: facts.Unknown("no answer") for name in names}
    host = dataclasses.replace(SOUND, **unknown)
    unanswered = [each for each in diagnose(host) if "no answer" in each.found]
    # The engine's disks and the agent depend on the engine and the agent's socket.
    assert len(unanswered) == len(names) - 3


def test_every_check_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = text.split("\n### Doctor checks\n", 1)[1].split("\n## ", 1)[0]
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))
    assert explained == {finding.check for finding in diagnose(SOUND)}


def test_user_namespaces_are_advised_beside_capabilities() -> None:
    engine = SOUND.engine
    assert isinstance(engine, facts.EngineFacts)
    engine = dataclasses.replace(engine, info={**engine.info, "SecurityOptions": []})
    found = dataclasses.replace(SOUND, engine=engine, policy=SETUID)
    [finding] = [each for each in diagnose(found) if each.check == "userns-remap"]
    assert finding.level is WARN
    assert "SETUID" in finding.found
    assert "userns-remap" in finding.hint
