"""The shipped units are valid for systemd and match the programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.serve import STOP_SECONDS
from agent.domain.sessions.retention import ENDED_KEPT
from agent.logs.reading import CHUNK_BYTES as LOG_CHUNK_BYTES
from agent.logs.reading import EACH_HOST
from agent.network.tls_gate import Limits
from agent.network.tls_relay import CHUNK_BYTES
from agent.settings.model import AgentConfig
from controlplane.admission.byte_room import BODIES_BYTES, RESPONSES_BYTES
from controlplane.api.enrolling import BOUNDS
from controlplane.http.listeners import STOP_TIMEOUT
from controlplane.sessions.descriptions import MOST_BYTES as DESCRIPTION_BYTES
from controlplane.sessions.sessions import STOP_WAIT
from controlplane.settings.model import Config
from tests.support.harness import ROOT
from tiltyard.runtime.settings import EXIT_CONFIG

SYSTEMD = ROOT / "systemd"
UNITS = ("tiltyard-agent", "tiltyard-controlplane")
MOST_EXPOSURE = {"tiltyard-agent": 5.0, "tiltyard-controlplane": 2.5}
CAPABILITIES = {
    "tiltyard-agent": {"CAP_KILL", "CAP_NET_ADMIN", "CAP_NET_RAW"},
    "tiltyard-controlplane": set(),
}
SECONDS = {"s": 1, "min": 60}
HELD_BYTES = {
    "tiltyard-agent": {
        "the program": 75 * 10**6,
        "live sessions": 1000 * 60_000,
        "ended sessions": ENDED_KEPT * 15_000,
        "connections to TLS ports": Limits().total * 2 * CHUNK_BYTES,
        "readers of logs": 2 * EACH_HOST * 4 * LOG_CHUNK_BYTES,
    },
    "tiltyard-controlplane": {
        "the program with 20,000 sessions": 2 * 415 * 10**6,
        "bodies": BODIES_BYTES,
        "responses": RESPONSES_BYTES,
        "descriptions": DESCRIPTION_BYTES,
    },
}
"""Most bytes that each program holds at its limits; docs/performance.md has what was measured."""


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def lines(unit: str, key: str) -> list[str]:
    """Return the values of a key in order."""
    text = (SYSTEMD / f"{unit}.service").read_text("utf-8")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def line(unit: str, key: str) -> str:
    [value] = lines(unit, key)
    return value


def seconds(unit: str, key: str) -> float:
    found = re.fullmatch(r"(\d+)(s|min|)", line(unit, key))
    assert found is not None
    return int(found[1]) * SECONDS[found[2] or "s"]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_problems(unit: str, tmp_path: Path) -> None:
    text = (SYSTEMD / f"{unit}.service").read_text("utf-8")
    # systemd-analyze looks for the programs, which may not be installed.
    copy = tmp_path / f"{unit}.service"
    copy.write_text(re.sub(r"/opt/tiltyard/\S+/bin/\S+", "/bin/true", text), "utf-8")
    assert run("systemd-analyze", "verify", "--man=no", copy) == ""


@pytest.mark.parametrize("unit", UNITS)
def test_little_is_exposed(unit: str) -> None:
    output = run("systemd-analyze", "security", "--offline=yes", SYSTEMD / f"{unit}.service")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert found is not None, output
    assert float(found[1]) <= MOST_EXPOSURE[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_every_capability_has_a_reason(unit: str) -> None:
    assert set(line(unit, "AmbientCapabilities").split()) == CAPABILITIES[unit]
    assert set(line(unit, "CapabilityBoundingSet").split()) == CAPABILITIES[unit]
    text = (SYSTEMD / f"{unit}.service").read_text("utf-8")
    assert set(re.findall(r"^# (CAP_\w+): \w", text, re.MULTILINE)) == CAPABILITIES[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_restarts_forever_except_for_invalid_settings(unit: str) -> None:
    assert line(unit, "Type") == "notify"
    assert line(unit, "Restart") == "always"
    assert line(unit, "StartLimitIntervalSec") == "0"
    assert int(line(unit, "RestartPreventExitStatus")) == EXIT_CONFIG
    # It dumps stacks on the watchdog's SIGABRT.
    assert "PYTHONFAULTHANDLER=1" in lines(unit, "Environment")


@pytest.mark.parametrize("unit", UNITS)
def test_strangers_cannot_fill_the_journal_through_grpc(unit: str) -> None:
    assert "GRPC_VERBOSITY=ERROR" in lines(unit, "Environment")


def test_agent_loads_no_authorities() -> None:
    code = (
        "import agent.cli.serve, gc, ssl\n"
        "contexts = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]\n"
        "print(len(contexts) > 0, sum(each.cert_store_stats()['x509'] for each in contexts))\n"
    )
    environment = dict(each.split("=", 1) for each in lines("tiltyard-agent", "Environment"))
    shown = subprocess.check_output(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, text=True, timeout=50
    )
    has_contexts, authorities = shown.split()
    assert has_contexts == "True"
    assert authorities == "0"


def test_stop_timeout_exceeds_shutdown_time() -> None:
    assert seconds("tiltyard-agent", "TimeoutStopSec") > STOP_SECONDS
    listeners = 3 * STOP_TIMEOUT
    bounded = listeners + Config().start_timeout + STOP_WAIT
    assert seconds("tiltyard-controlplane", "TimeoutStopSec") > bounded


@pytest.mark.parametrize("unit", UNITS)
def test_memory_is_bounded_at_twice_what_a_program_may_hold(unit: str) -> None:
    found = re.fullmatch(r"(\d+)G", line(unit, "MemoryMax"))
    assert found is not None
    assert int(found[1]) * 2**30 >= 2 * sum(HELD_BYTES[unit].values())
    assert lines(unit, "MemoryHigh") == []  # it stalls the event loop, as a hang does


def test_engine_and_agent_restart_independently() -> None:
    assert "docker.service" in line("tiltyard-agent", "After").split()
    assert "docker.service" in line("tiltyard-agent", "Wants").split()
    bound = ("Requires", "Requisite", "BindsTo", "PartOf", "Upholds")
    assert not [key for key in bound if lines("tiltyard-agent", key)]


def test_folders_match_settings() -> None:
    agent = AgentConfig(public_address="192.0.2.1")
    assert f"/var/lib/{line('tiltyard-agent', 'StateDirectory')}" == str(agent.state_dir)
    assert f"/run/{line('tiltyard-agent', 'RuntimeDirectory')}" == str(agent.socket.parent)
    state = line("tiltyard-controlplane", "StateDirectory")
    assert f"/var/lib/{state}" == str(Config().state_dir)
    for unit in UNITS:
        assert line(unit, "StateDirectoryMode") == "0700"
        assert line(unit, "User") == unit
        assert line(unit, "Group") == unit
        assert line(unit, "StateDirectory") == unit


def test_open_file_limits_cover_settings() -> None:
    connections = Config().max_connections + BOUNDS.total + 256  # the database, agents, listeners
    assert int(line("tiltyard-controlplane", "LimitNOFILE")) > connections
    # TLS ports get a quarter of them.
    connections = AgentConfig(public_address="192.0.2.1").tls_max_connections
    assert int(line("tiltyard-agent", "LimitNOFILE")) >= 4 * connections


def test_agent_can_read_proc_of_games() -> None:
    assert line("tiltyard-agent", "ProtectProc") == "default"
    assert line("tiltyard-agent", "ProcSubset") == "all"
