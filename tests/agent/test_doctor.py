"""The doctor on this machine: with and without an agent, and without any answer."""

import asyncio
import ctypes
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.main import main
from agent.doctor import gather as gathering
from agent.doctor.diagnosis import diagnose
from agent.doctor.exposure import exposure
from agent.doctor.facts import (
    AgentFacts,
    DiskFacts,
    EngineFacts,
    FileFacts,
    KernelFacts,
    Level,
    Unknown,
    warn,
)
from agent.doctor.gather import gather
from agent.doctor.host_facts import disk_facts, file_facts, kernel_facts, port_list
from agent.settings.model import AgentConfig
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.scripted_engine import INFO, ScriptedEngine, says
from tests.support.agent.served import served
from tests.support.agent.tls_players import issue
from tests.support.certificates import Signer
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tests.support.harness import free_port, to_toml
from tiltyard.contract import NetworkMode, PortRequest, Protocol
from tiltyard.runtime.settings import EXIT_CONFIG


def settings_of(folder: Path) -> dict[str, Any]:
    return {
        "state_dir": str(folder / "state"),
        "socket": str(folder / "agent.sock"),
        "docker_socket": str(folder / "engine.sock"),
        "public_address": "192.0.2.1",
        "firewall_bridges": [],
    }


def config_of(folder: Path, **changes: Any) -> AgentConfig:
    return AgentConfig(**{**settings_of(folder), **changes})


def run(folder: Path, command: str, *options: str, **changes: str) -> Result:
    file = folder / "agent.toml"
    file.write_text(to_toml(settings_of(folder) | changes))
    return CliRunner().invoke(main, [command, "--config", str(file), *options])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can enter, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_checks_host_without_engine_and_agent_and_prints_lines_or_json(tmp_path: Path) -> None:
    result = run(tmp_path, "doctor")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert re.fullmatch(
        "FAIL  docker  +cannot reach the container engine: No such file .*", lines[2]
    )
    assert lines[3].startswith("      hint: see `journalctl -u docker`")
    assert any(re.fullmatch("WARN  agent-sock  +there is none", line) for line in lines)
    assert re.fullmatch("[0-9]+ OK, [0-9]+ WARN, 2 FAIL", lines[-1])
    assert all(line.isprintable() for line in lines)
    assert {path.name for path in tmp_path.iterdir()} == {"agent.toml"}  # nothing was created
    result = run(tmp_path, "doctor", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["well"] is False
    assert {each["check"]: each for each in answer["findings"]}["firewall"] == {
        "check": "firewall",
        "level": "OK",
        "found": "disabled in the settings",
        "hint": "",
    }


def test_exit_code_is_0_with_warnings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = warn("clock", "it is not synchronised", "fix it")
    monkeypatch.setattr("agent.doctor.diagnosis.diagnose", lambda _: [found])
    assert run(tmp_path, "doctor").exit_code == 0


def test_reports_unreadable_policy(tmp_path: Path) -> None:
    result = run(tmp_path, "doctor", policy=str(tmp_path / "none.toml"))
    assert re.search("^FAIL  policy .*cannot read", result.stdout, re.MULTILINE)


def test_rejects_invalid_settings_like_every_command(tmp_path: Path) -> None:
    result = run(tmp_path, "doctor", port_range="1-2")
    assert result.exit_code == EXIT_CONFIG
    assert "port_range" in result.stderr


async def test_hung_engine_does_not_block(
    tmp_path: Path, engine_socket: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_socket.answer("GET /version", engine_socket.hang)
    for seconds in (0.1, 1.0, 10.0):  # a busy machine is slow to read the rest
        monkeypatch.setattr(gathering, "ANSWER_SECONDS", seconds)
        facts = await asyncio.to_thread(gather, config_of(tmp_path))
        if isinstance(facts.kernel, KernelFacts):
            break
    engine_socket.let_go()
    assert facts.engine == Unknown(f"no answer within {seconds:g} s")
    assert isinstance(facts.kernel, KernelFacts)


def test_hung_disk_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = threading.Event()
    monkeypatch.setattr(gathering, "disk_facts", lambda _: fixed.wait())
    for seconds in (1, 3, 10, 30):  # a busy machine is slow to read the rest
        facts = gather(config_of(tmp_path), seconds=seconds)
        if isinstance(facts.kernel, KernelFacts):
            break
    fixed.set()
    assert facts.state_disk == Unknown(f"no answer within {seconds} s")
    assert isinstance(facts.kernel, KernelFacts)


async def test_only_reads_from_engine(tmp_path: Path, engine_socket: ScriptedEngine) -> None:
    engine_socket.answer("GET /info", says({**INFO, "DockerRootDir": str(tmp_path)}))
    engine_socket.answer("GET /networks", says([]))  # as before the agent creates its network
    ports = [{"Type": "udp", "PublicPort": 20001}, {"Type": "tcp", "PrivatePort": 1}]
    engine_socket.answer("GET /containers/json", says([{"Ports": ports}]))
    facts = await asyncio.to_thread(gather, config_of(tmp_path))
    assert isinstance(facts.engine, EngineFacts)
    assert facts.engine.info["ServerVersion"] == INFO["ServerVersion"]
    assert not facts.engine.kept_apart
    assert facts.engine.published == {(Protocol.UDP, 20001)}
    assert isinstance(facts.engine_disk, DiskFacts)
    assert facts.engine_disk.path == str(tmp_path)
    assert {each.split()[0] for each in engine_socket.seen} == {"GET"}


async def test_tolerates_malformed_engine_responses(
    tmp_path: Path, engine_socket: ScriptedEngine
) -> None:
    answers: list[Any] = [[], {}, "x", {"ApiVersion": None}]
    for nonsense in answers:
        engine_socket.answer("GET /version", says(nonsense))
        engine_socket.answer("GET /info", says(nonsense))
        assert isinstance((await asyncio.to_thread(gather, config_of(tmp_path))).engine, Unknown)


async def test_reads_ports_of_running_agent_also_behind_tls(tmp_path: Path) -> None:
    files = issue(Signer.new(), tmp_path / "pair")
    clock = FakeClock(time.time())
    requests = (PortRequest(7778, Protocol.TCP, tls=True),)
    async with served(tmp_path, FakeEngine(clock), clock, files) as host:
        spec = a_spec(ports=requests, network_mode=NetworkMode.HOST)
        [port] = (await host.sessions.start(an_id(), spec)).ports
        facts = await asyncio.to_thread(gather, config_of(tmp_path))
    assert isinstance(facts.agent, AgentFacts)
    assert facts.agent.held_ports == {(Protocol.TCP, port.host), (Protocol.TCP, port.inner)}
    assert facts.agent.reconciled
    assert facts.agent.process is not None
    assert facts.agent.process.uid == os.geteuid()
    assert facts.agent.process.network == os.readlink("/proc/self/ns/net")  # noqa: PTH115
    assert isinstance(facts.agent_socket, FileFacts)
    assert stat.S_IMODE(facts.agent_socket.mode) == 0o660


async def test_reports_certificate_that_is_not_valid_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = issue(Signer.new(), tmp_path / "pair")
    before = time.time() - 3 * 86400
    monkeypatch.setattr("agent.doctor.gather.time.time", lambda: before)
    settings = config_of(tmp_path, tls_certificate=files.certificate, tls_key=files.key)
    facts = await asyncio.to_thread(gather, settings)
    [found] = [each for each in diagnose(facts) if each.check == "tls"]
    assert found.level == Level.FAIL
    assert " begins on " in found.found


def test_reads_bound_tcp_and_udp_ports() -> None:
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    with (
        socket.socket(socket.AF_INET, kinds[0]) as tcp,
        socket.socket(socket.AF_INET6, kinds[1]) as udp,
    ):
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind(("127.0.0.1", free_port()))
        tcp.listen()
        udp.bind(("::1", free_port()))
        ports = {(Protocol.TCP, tcp.getsockname()[1]), (Protocol.UDP, udp.getsockname()[1])}
        assert ports <= kernel_facts().bound_ports
    assert not ports & kernel_facts().bound_ports


@pytest.mark.parametrize(
    ("status", "synchronised"),
    [
        (0x2001, True),
        (0x0040, False),
    ],
)
def test_reads_clock_synchronisation_from_kernel(
    monkeypatch: pytest.MonkeyPatch, *, status: int, synchronised: bool
) -> None:
    def adjtimex(timex: Any) -> int:
        words = ctypes.cast(timex, ctypes.POINTER(ctypes.c_int))
        assert words[0] == 0  # `modes`: read-only
        words[10] = status
        return 5  # TIME_ERROR: not synchronised, not a failure

    libc = SimpleNamespace(adjtimex=adjtimex)
    monkeypatch.setattr("tiltyard.runtime.kernel_clock.ctypes.CDLL", lambda *_, **__: libc)
    assert kernel_facts().clock_synchronised is synchronised


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", []),
        ("80", [80]),
        ("80,90-92", [80, 90, 91, 92]),
    ],
)
def test_parses_kernel_port_lists(text: str, ports: list[int]) -> None:
    assert list(port_list(text)) == ports


def test_parent_folders_decide_accessibility(tmp_path: Path, open_folder: Path) -> None:
    for folder, open_way in ((tmp_path, False), (open_folder, True)):
        (folder / "file").touch(mode=0o600)
        facts = file_facts(folder / "file")
        assert facts is not None
        assert facts.open_way == open_way
        assert stat.S_IMODE(facts.mode) == 0o600
    assert file_facts(tmp_path / "none") is None


def test_missing_folder_is_on_disk_of_its_parent(tmp_path: Path) -> None:
    assert disk_facts(tmp_path / "a" / "b").path == str(tmp_path)


def test_agent_does_not_start_with_world_accessible_docker_socket(open_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(open_folder / "engine.sock"))
        (open_folder / "engine.sock").chmod(0o666)
        result = run(open_folder, "serve")
    assert result.exit_code == EXIT_CONFIG
    assert "is open to all users of this host, which makes them root: chmod 0660" in result.stderr
    assert not (open_folder / "state").exists()


async def test_agent_starts_without_engine(
    tmp_path: Path, engine_socket: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await asyncio.to_thread(exposure, tmp_path / "none.sock") == ""
    monkeypatch.setattr("agent.doctor.exposure.ENGINE_SECONDS", 0.1)
    engine_socket.answer("GET /version", engine_socket.hang)
    assert await asyncio.to_thread(exposure, engine_socket.socket) == ""
    engine_socket.let_go()


@pytest.mark.parametrize("key", ["state_dir", "socket"])
def test_agent_reports_a_folder_that_it_cannot_make_in_one_line(tmp_path: Path, key: str) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = tmp_path / "agent.toml"
    settings.write_text(to_toml(settings_of(tmp_path) | {key: str(file / "made" / "inside")}))
    command = [sys.executable, "-m", "agent", "serve", "--config", str(settings)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("tiltyard-agent: ")]
    assert line.startswith(f"tiltyard-agent: cannot write {file}")
    assert "Traceback" not in ended.stderr
