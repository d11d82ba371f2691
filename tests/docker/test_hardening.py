"""Isolation of a session's container, observed by a program within it and from outside."""

import gzip
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGUSR1
from typing import Any

import pytest

from agent.docker.dockerd import grantable_nofile
from agent.doctor import gather
from agent.doctor.user_counts import user_counts
from agent.domain.host.kernel_needs import INOTIFY_INSTANCES, PENDING_SIGNALS
from tests.demo_game import compiled
from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import FIRST, Machine, ports_of
from tests.docker.stack import PATIENCE, eventually
from tests.docker.test_reports import OOM_TRIES
from tests.faults.containers import remove_container
from tests.support.agent.tars import Entry, folder, read
from tests.support.harness import Registry
from tests.support.pushed_image import push_image
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import MIN_PIDS, Capability

SOURCE = Path(__file__).with_name("inmate.c")
CGROUPS = Path("/sys/fs/cgroup")
MEMORY = 64 * 2**20
OWN_USER = 54321  # What the kernel counts for it, no other program of the machine uses
PIDS_LIMIT = 512
"""The memory limit of `Agent.play`, which also limits to one core and reserves 0.01."""
READ_ONLY = (
    "/run/tiltyard/new",
    "/run/tiltyard/session.json",
    "/proc/sys/kernel/hostname",
)
HOSTILE: dict[str, object] = {
    "Labels": {
        "io.tiltyard.agent": "other",
        "io.tiltyard.session": "other",
        "io.tiltyard.record": "{}",
        "other": "kept",
    },
    "Env": ["TILTYARD_SESSION_ID=other", "TILTYARD_PORT_UDP_7777=1", "OTHER=kept"],
    "ExposedPorts": {"9999/udp": {}, **{f"{port}/tcp": {} for port in (22, *range(20000, 20101))}},
    "User": "12345:54321",
    "WorkingDir": "/run/tiltyard",
    "Healthcheck": {"Test": ["CMD", "/inmate", "exit", "1"], "Interval": 10**9},
    "StopSignal": "SIGUSR1",
    "Volumes": {"/data": {}, "/run": {}, "/etc": {}},
    "Entrypoint": ["/inmate", "environment"],
}

Build = Callable[..., str]
"""Makes an image with these settings for its containers; returns its reference."""


@dataclass
class Prison:
    """An agent on a private engine, with images of the observing program."""

    agent: KilledAgent
    build: Build

    def held(self, *orders: str, image: str = "", **asked: Any) -> pb.Session:
        """Start a session that carries out orders, by default with the plain image."""
        self.agent.machine.image = image or self.build()
        return self.agent.play(*orders, **asked)

    def observed(self, session: pb.Session) -> dict[str, list[str]]:
        """Wait for all orders; return the output lines of each."""
        said = ""

        def done() -> bool:
            nonlocal said
            said = str(self.agent.container_of(session).logs(stderr=False), "utf-8")
            return said.endswith("#### end \n")

        eventually(done, "its orders are carried out")
        parts = (part.split("\n") for part in said.split("#### ")[1:])
        return {order.strip(): lines[:-1] for order, *lines in parts}

    def cgroup(self, session: pb.Session, old: str, new: str) -> Path:
        """A file of a session's cgroup: `controller/name` in v1, `name` in v2."""
        process = self.agent.container_of(session).attrs["State"]["Pid"]
        paths = dict(
            line.split(":", 2)[1:] for line in Path(f"/proc/{process}/cgroup").read_text().split()
        )
        controller, _, name = old.partition("/")
        for names, path in paths.items():
            if controller in names.split(","):
                return CGROUPS / controller / path.lstrip("/") / name
        return CGROUPS / paths[""].lstrip("/") / new


@pytest.fixture(scope="module")
def build(machine: Machine) -> Iterator[Build]:
    entries = [
        Entry(b"inmate", content=compiled(SOURCE).read_bytes(), mode=0o755),
        folder(b"data"),
        Entry(b"data/own", content=b"of the image"),
    ]

    def made(**settings: object) -> str:
        config = {"Entrypoint": ["/inmate"], "User": "", **settings}
        image = push_image(registry.address, "inmate", entries=entries, config=config).reference
        machine.client.images.pull(image)
        return image

    with Registry(machine.engine.network.host_address) as registry:
        yield made


@pytest.fixture(scope="module")
def agent(machine: Machine) -> Iterator[KilledAgent]:
    with KilledAgent(machine, ports=9).allow_privileges() as agent:
        yield agent


@pytest.fixture
def prison(agent: KilledAgent, build: Build) -> Iterator[Prison]:
    yield Prison(agent, build)
    for container in agent.containers():
        remove_container(container, volumes=True)


def test_root_in_a_container_has_no_privileges(prison: Prison) -> None:
    session = prison.held("show", "/proc/self/status", "attempt", "show", "/proc/self/uid_map")
    seen = prison.observed(session)
    status = dict(line.split(":\t", 1) for line in seen["show /proc/self/status"] if ":\t" in line)
    assert status["Uid"].split()[0] == "0"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    refused = [line for line in seen["attempt"] if re.search("not permitted|denied", line)]
    assert refused == seen["attempt"]
    assert len(refused) == 14
    of_engine = Path(f"/proc/{prison.agent.machine.engine.pid}/uid_map").read_text()
    assert seen["show /proc/self/uid_map"] == of_engine.splitlines()


@pytest.mark.parametrize("user", ["", "1000:1000"])
def test_capabilities_are_those_that_the_engine_gives_below_its_own_init(
    prison: Prison, user: str
) -> None:
    image = prison.build(User=user)
    asked = (Capability.CHOWN, Capability.KILL, Capability.SETUID)
    orders = ("show", "/proc/self/status", "show", "/proc/1/environ")
    session = prison.held(*orders, image=image, capabilities=asked)
    seen = prison.observed(session)
    of_engine = prison.agent.machine.client.containers.run(
        image,
        ["show", "/proc/self/status", "exit", "0"],
        init=True,
        cap_drop=["ALL"],
        cap_add=list(asked),
        security_opt=["no-new-privileges"],
        remove=True,
    )
    status = rights_of(seen["show /proc/self/status"])
    assert status == rights_of(str(of_engine, "utf-8").splitlines())
    assert int(status["CapBnd"], 16) == 1 << 0 | 1 << 5 | 1 << 7
    assert status["NoNewPrivs"] == "1"
    assert seen["show /proc/1/environ"] == ["Permission denied"]


def test_doctor_names_the_session_that_holds_most_of_what_its_user_may_have(
    prison: Prison,
) -> None:
    image = prison.build(User=f"{OWN_USER}:{OWN_USER}")
    modest = prison.held("watch", "1", image=image)
    greedy = prison.held("watch", "20", "timers", "30", image=image)
    prison.observed(greedy)
    prison.observed(modest)
    found = gather.agent_facts(prison.agent.socket)
    counts = user_counts(gather.processes_of_sessions(found.first_processes))
    own = {each.need: each for each in counts if each.user == OWN_USER}
    assert own[INOTIFY_INSTANCES].used == 21
    assert own[INOTIFY_INSTANCES].held == 20
    assert own[INOTIFY_INSTANCES].session == greedy.internal_id
    assert own[PENDING_SIGNALS].used == 30
    assert own[PENDING_SIGNALS].held == 30
    assert own[PENDING_SIGNALS].session == greedy.internal_id


def rights_of(lines: Sequence[str]) -> dict[str, str]:
    """What a process may do, by its status."""
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    kinds = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")
    return {kind: status[kind] for kind in kinds}


def test_container_sees_only_its_own_folder(prison: Prison) -> None:
    other = prison.held()
    session = prison.held(
        "list",
        "/run/tiltyard",
        "list",
        "/run",
        "list",
        "/proc",
        "list",
        "/",
        "show",
        "/run/tiltyard/session.json",
        "show",
        "/proc/self/mountinfo",
        "show",
        "/proc/self/cgroup",
        "write",
        "/run/tiltyard/new",
        "write",
        "/run/tiltyard/session.json",
        "write",
        "/run/tiltyard-init",
        "write",
        "/proc/sys/kernel/hostname",
    )
    seen = prison.observed(session)
    assert sorted(seen["list /run"]) == ["100755 tiltyard-init", "40755 tiltyard"]
    assert seen["list /run/tiltyard"] == ["100644 session.json"]
    assert json.loads(seen["show /run/tiltyard/session.json"][0])["id"] == session.internal_id
    for path in READ_ONLY:
        assert seen[f"write {path}"] == ["Read-only file system"]
    assert seen["write /run/tiltyard-init"] in (["Text file busy"], ["Read-only file system"])
    assert "docker.sock" not in str(seen)
    assert other.internal_id not in str(seen)

    processes = [line for line in seen["list /proc"] if line.split()[1].isdigit()]
    assert len(processes) == 2  # init and itself
    assert {line.rpartition(":")[2] for line in seen["show /proc/self/cgroup"]} == {"/"}
    mounted = {}
    groups = set()
    for line in seen["show /proc/self/mountinfo"]:
        _, _, _, source, target, options, *_ = line.split()
        if line.partition(" - ")[2].startswith("cgroup"):
            groups.add(options.split(",")[0])
        if not target.startswith(("/proc", "/sys", "/dev")):
            mounted[target] = (source, options.split(",")[0])
    folder = prison.agent.state_dir / "sessions" / session.internal_id
    source, options = mounted.pop("/run/tiltyard")
    assert source.endswith(f"/sessions/{session.internal_id}/public")
    assert options == "ro"
    source, options = mounted.pop("/run/tiltyard-init")
    assert str(prison.agent.state_dir / "init") in source
    assert options == "ro"
    assert set(mounted) == {"/", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
    assert groups == {"ro"}  # with cgroup v1 they are in a tmpfs, which runc 1.1 leaves writable
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "public")]
    assert modes == [0o700, 0o700, 0o755]


def test_container_has_the_requested_limits(prison: Prison) -> None:
    session = prison.held("show", "/proc/self/limits")
    seen = prison.observed(session)
    limits = {line[:26].strip(): line[26:].split()[:2] for line in seen["show /proc/self/limits"]}
    nofile = grantable_nofile(prison.agent.machine.engine.pid)
    assert limits["Max open files"] == [str(nofile)] * 2
    assert limits["Max core file size"] == ["0", "0"]

    def limit(old: str, new: str) -> str:
        return prison.cgroup(session, old, new).read_text().strip()

    assert limit("pids/pids.max", "pids.max") == str(PIDS_LIMIT)
    shm = Path(f"/proc/{prison.agent.session(session).pid}/root/dev/shm")
    assert os.statvfs(shm).f_blocks * os.statvfs(shm).f_frsize == 64 * 2**20
    assert limit("memory/memory.limit_in_bytes", "memory.max") == str(MEMORY)
    swap = limit("memory/memory.memsw.limit_in_bytes", "memory.swap.max")
    assert swap in {str(MEMORY), "0"}  # memory and swap together, or swap alone
    assert limit("cpu/cpu.cfs_quota_us", "cpu.max").split()[0] == "100000"
    assert int(limit("cpu/cpu.shares", "cpu.weight")) <= 10  # by default it is 1024 or 100


def test_memory_beyond_the_limit_ends_the_session(prison: Prison) -> None:
    for _ in range(OOM_TRIES):
        # It lives for about a second, so that the agent can find its counters.
        session = prison.held("orphans", str(10 * PIDS_LIMIT), "eat")
        ended = prison.agent.until(session, pb.STATE_EXITED)
        assert ended.exit_code == 137
        if ended.end_reason == pb.END_REASON_OOM:
            break
    assert ended.end_reason == pb.END_REASON_OOM


def test_report_names_the_limit_of_processes(prison: Prison) -> None:
    session = prison.held("forks", pids=20)
    assert prison.agent.until(session, pb.STATE_EXITED).exit_code == 3
    report = prison.agent.report(session)
    assert report.limits_met == [pb.LIMIT_PIDS]
    assert report.detail == "it could not have another process or thread (limits.pids)"


def test_report_names_the_limit_of_shared_memory(prison: Prison) -> None:
    session = prison.held("fill", "9", shm_bytes=8 * 2**20)
    assert prison.agent.until(session, pb.STATE_EXITED).exit_code == 135  # SIGBUS
    report = prison.agent.report(session)
    assert report.limits_met == [pb.LIMIT_SHM]
    assert report.detail == "its /dev/shm was full (limits.shm)"


def test_a_session_shares_half_of_its_memory(prison: Prison) -> None:
    session = prison.held("fill", "100", memory_bytes=2**28)
    prison.observed(session)
    assert prison.agent.session(session).state == pb.STATE_RUNNING


def test_report_says_that_a_child_was_out_of_memory(prison: Prison) -> None:
    for _ in range(OOM_TRIES):
        session = prison.held("orphans", str(PIDS_LIMIT), "child-eats", "exit", "0")
        assert prison.agent.until(session, pb.STATE_EXITED).exit_code == 0
        report = prison.agent.report(session)
        if report.oom_killed:
            break
    assert report.oom_killed


def test_session_with_the_fewest_processes_starts(prison: Prison) -> None:
    session = prison.held("show", "/proc/self/limits", pids=MIN_PIDS)
    prison.observed(session)
    assert prison.agent.session(session).state == pb.STATE_RUNNING


def test_f30_a_fork_bomb_stays_within_its_limit_and_ends_when_told(
    machine: Machine, build: Build
) -> None:
    with KilledAgent(machine, ports=2, first=FIRST + 100, stop_grace=1) as agent:
        prison = Prison(agent, build)
        session = prison.held("deaf", "bomb", memory_bytes=2**28)  # processes also take memory
        current = prison.cgroup(session, "pids/pids.current", "pids.current")
        eventually(lambda: int(current.read_text()) == PIDS_LIMIT, "it has all it gets")
        subprocess.run(["true"], check=True, timeout=PATIENCE)
        assert agent.session(prison.held()).state == pb.STATE_RUNNING
        assert int(current.read_text()) <= PIDS_LIMIT
        agent.end(session)
        ended = agent.session(session)
        assert ended.state == pb.STATE_EXITED
        assert ended.end_reason == pb.END_REASON_STOPPED
        eventually(lambda: _count(current) == 0, "all have ended")


def _count(current: Path) -> int:
    """The number of processes of a cgroup; 0 once it is gone."""
    try:
        return int(current.read_text())
    except OSError:
        return 0


def test_f30_children_that_nobody_waits_for_are_buried(machine: Machine, build: Build) -> None:
    with KilledAgent(machine, ports=2, first=FIRST + 100) as agent:
        prison = Prison(agent, build)
        session = prison.held("orphans", str(2 * PIDS_LIMIT))
        prison.observed(session)
        current = prison.cgroup(session, "pids/pids.current", "pids.current")
        eventually(lambda: current.read_text() == "2\n", "init and the program are left")
        agent.end(session)
        assert agent.session(session).exit_code == 143


def test_settings_of_an_image_do_not_weaken_isolation(prison: Prison) -> None:
    session = prison.held("show", "/proc/self/status", image=prison.build(**HOSTILE))
    seen = prison.observed(session)
    variables = dict(line.split("=", 1) for line in seen["environment"])
    assert variables["TILTYARD_SESSION_ID"] == session.internal_id
    [(_, port)] = ports_of(session)
    assert variables["TILTYARD_PORT_UDP_7777"] == str(port)
    assert variables["OTHER"] == "kept"
    assert "Uid:\t12345\t12345\t12345\t12345" in seen["show /proc/self/status"]
    container = prison.agent.container_of(session)
    assert container.labels["io.tiltyard.session"] == session.internal_id
    assert container.labels["io.tiltyard.agent"] == prison.agent.agent_id
    assert json.loads(container.labels["io.tiltyard.record"])
    assert [key for key, bindings in container.ports.items() if bindings] == ["7777/udp"]
    prison.agent.assert_ports_agree(session)
    assert container.attrs["Config"]["Healthcheck"]["Test"] == ["NONE"]
    assert "Health" not in container.attrs["State"]
    prison.agent.end(session)
    ended = prison.agent.session(session)
    assert ended.exit_code == 128 + SIGUSR1  # that of the image
    assert ended.end_reason == pb.END_REASON_STOPPED


def test_image_volume_is_removed_with_its_container(prison: Prison) -> None:
    volumes = prison.agent.machine.client.volumes
    eventually(lambda: volumes.list() == [], "those of earlier sessions are removed")
    session = prison.held(
        "list",
        "/data",
        "write",
        "/data/mark",
        "exit",
        "3",
        image=prison.build(Volumes={"/data": {}}),
        restart=True,
    )
    eventually(lambda: prison.agent.session(session).restart_count >= 1, "it is restarted")
    found = b"100644 mark\n"
    eventually(
        lambda: found in prison.agent.container_of(session).logs(), "it finds what it wrote"
    )
    assert len(volumes.list()) == 1
    prison.agent.end(session)
    packed = b"".join(piece.data for piece in prison.agent.fetch(session, "/data"))
    names = {entry.name for entry in read(gzip.decompress(packed))}
    assert {b"data/own", b"data/mark"} <= names
    prison.agent.settings["container_retention_hours"] = 0
    prison.agent.restart()
    eventually(lambda: volumes.list() == [], "the volume went with its container")
    assert prison.agent.containers() == []


@pytest.mark.parametrize(
    "settings",
    [
        {"Volumes": {"/run/tiltyard/new": {}}},
        {"Volumes": {"/run/tiltyard-init": {}}},
        {"Volumes": {"/proc/self": {}}},
        pytest.param(
            {
                "ExposedPorts": {
                    f"{port}/{protocol}": {}
                    for port in range(1, 2**16)
                    for protocol in ("tcp", "udp")
                }
            },
            marks=pytest.mark.slow,
            id="all ports",
        ),
    ],
)
def test_excessive_image_is_refused_and_leaves_nothing(
    prison: Prison, settings: dict[str, object]
) -> None:
    prison.agent.machine.image = prison.build(**settings)
    assert prison.agent.refusal() == "IMAGE_CANNOT_RUN"
    assert prison.agent.containers() == []
    assert prison.agent.machine.client.volumes.list() == []
    prison.agent.assert_ports_agree()
