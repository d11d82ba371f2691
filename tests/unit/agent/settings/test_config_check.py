"""`config check` of the agent: all mistakes at once, or the settings and whence each comes."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.main import main
from agent.doctor.settings_checks import all_mistakes
from agent.settings.model import AgentConfig, load_config
from tests.support.agent.tls_players import issue
from tests.support.certificates import Signer
from tests.support.settings_files import assert_taken_or_told
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.settings.report import EXIT_CONFIG

AUTHORITY = Signer.new()


class Settings:
    """A file that is well, to which mistakes are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "agent.toml"
        self.base = f'public_address = "127.0.0.1"\nstate_dir = "{folder}/state"\n'
        self.base += f'socket = "{folder}/agent.sock"\n'

    def check(self, text: str = "", *options: str, **environment: str) -> Result:
        self.path.write_text(self.base + text)
        command = ["config", "check", "--config", str(self.path), *options]
        variables = {f"TILTYARD_AGENT_{key}": value for key, value in environment.items()}
        return CliRunner().invoke(main, command, env=variables)

    def told(self, text: str) -> list[str]:
        """Lines of what is no warning, without the name of the file."""
        lines = self.check(text).stderr.replace(f"{self.path}:", "").splitlines()
        return [line for line in lines if ": warning: " not in line]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


def test_all_mistakes_are_told_at_once_each_with_its_place_and_hint(settings: Settings) -> None:
    policy = settings.folder / "policy.toml"
    policy.write_text("\nmax_cpu = -1\nmax_rams = 2\n")
    text = f"""\
max_sesions = 5
port_range = "1-2"
cpu = -1
ram = "much"
env_prefixes = []
firewall_blocked = [
  "10.0.0.0/8",
  "10.0.0.1/8",
]
tls_key = "/etc/key"
log_level = "loud"
policy = "{policy}"
failpoint = "nowhere"
rpc_listen = "127.0.0.1:20001"
metrics_listen = "0.0.0.0:20001"
"""
    result = settings.check(text, STOP_GRACE="long", MAX_SESION="7", START_SLOT="7")
    assert result.exit_code == EXIT_CONFIG
    assert result.stdout == ""
    found = {}
    for line in result.stderr.splitlines():
        place, key, told = line.replace(f"{settings.path}:", "").split(": ", 2)
        if "warning" not in {key, told[:7]}:
            found[key] = (place, told)
    expected = {
        "max_sesions": ("4", "unknown key 'max_sesions'; did you mean 'max_sessions'?"),
        "port_range": ("5", "must be FIRST-LAST within 1024-65535; correct it, or take it out"),
        "cpu": ("6", "must be more than 0, and is -1; correct it, or take it out"),
        "ram": ("7", "must be a whole number, and is 'much'; correct it, or take it out"),
        "env_prefixes": ("8", "must name at least one prefix; correct it, or take it out for the"),
        "firewall_blocked[1]": ("9", "10.0.0.1/8 has host bits set; correct it, or take it out"),
        "tls_key": ("13", "goes together with tls_certificate; set both or none"),
        "log_level": ("14", "must be 'debug', 'info', 'warning' or 'error', and is 'loud'"),
        "max_cpu": (f"{policy}:2", "must be more than 0, and is -1; correct it, or take it out"),
        "max_rams": (f"{policy}:3", "unknown key 'max_rams'; did you mean 'max_ram'?"),
        "failpoint": ("16", ""),
        "rpc_listen": ("17", "port 20001 is within port_range, 20000-30000; use another"),
        "metrics_listen": ("18", "port 20001 is within port_range, 20000-30000; use another"),
        "max_sesion": (
            "TILTYARD_AGENT_MAX_SESION",
            "unknown key 'max_sesion' in the environment; did you mean 'max_sessions'?",
        ),
        "start_slot": ("TILTYARD_AGENT_START_SLOT", "unknown key 'start_slot' in the environment"),
        "stop_grace": ("TILTYARD_AGENT_STOP_GRACE", "must be a number, and is 'long'; correct"),
    }
    for key, (place, told) in expected.items():
        assert found[key][0] == place, key
        assert found[key][1].startswith(told), key
    assert found.keys() == expected.keys()


def test_of_two_keys_that_go_together_the_one_that_is_there_is_told_of(settings: Settings) -> None:
    told = settings.told('tls_certificate = "/etc/chain"\nrpc_listen = "127.0.0.1:20001"\n')
    assert told[0] == "4: tls_certificate: goes together with tls_key; set both or none"
    assert told[1].startswith("5: rpc_listen: port 20001 is within port_range")


@pytest.mark.parametrize("key", ["cpu", "ram", "start_slots"])
def test_a_host_has_not_more_than_can_be_told(settings: Settings, key: str) -> None:
    [told] = settings.told(f"{key} = 1{'0' * 20}\n")
    assert told.startswith(f"4: {key}: must be at most ")


def test_settings_without_mistakes_are_shown_with_where_they_come_from(settings: Settings) -> None:
    result = settings.check("max_sessions = 5\n", STOP_GRACE="3", ENV_PREFIXES="A,B")
    assert result.exit_code == 0
    shown = {}
    for line in result.stdout.splitlines():
        setting, _, place = line.rpartition("  # ")
        shown[setting.strip()] = place
    assert shown["max_sessions = 5"] == f"{settings.path}:4"
    assert shown["stop_grace = 3.0"] == "TILTYARD_AGENT_STOP_GRACE"
    assert shown['env_prefixes = ["A", "B"]'] == "TILTYARD_AGENT_ENV_PREFIXES"
    assert shown['log_level = "info"'] == "default"
    assert shown["# policy is not set"] == "default"
    assert len(shown) == len(AgentConfig.model_fields)


def test_a_program_is_told_the_same(settings: Settings) -> None:
    good: Any = json.loads(settings.check("max_sessions = 5\n", "--json").stdout)
    assert good["settings"]["max_sessions"] == {"value": 5, "from": f"{settings.path}:4"}
    assert good["mistakes"] == []
    refused = settings.check("max_sessions = 0\n", "--json")
    assert refused.exit_code == EXIT_CONFIG
    bad: Any = json.loads(refused.stdout)
    assert bad["settings"] == {}
    assert bad["mistakes"] == [
        {
            "where": f"{settings.path}:4",
            "key": "max_sessions",
            "text": "must be at least 1, and is 0",
            "hint": "correct it, or take it out for the default, 1000",
        }
    ]


def test_warnings_fail_when_it_is_strict(settings: Settings) -> None:
    text = f'docker_socket = "{settings.folder}/none.sock"\nbind_address = "192.0.2.1"\n'
    result = settings.check(text)
    assert result.exit_code == 0
    assert f"{settings.path}:4: docker_socket: warning: there is no socket" in result.stderr
    assert f"{settings.path}:5: bind_address: warning: 192.0.2.1 is no address" in result.stderr
    assert settings.check(text, "--strict").exit_code == EXIT_CONFIG


def test_a_port_range_that_the_kernel_gives_away_is_a_warning(settings: Settings) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    result = settings.check(f'port_range = "{low}-{high}"\n')
    assert f"{settings.path}:4: port_range: warning: " in result.stderr
    assert "ip_local_reserved_ports" in result.stderr


def test_two_listeners_on_one_port_are_a_mistake(settings: Settings) -> None:
    text = 'rpc_listen = "127.0.0.1:7444"\nmetrics_listen = "127.0.0.1:7444"\n'
    [told] = settings.told(text)
    assert told.startswith("5: metrics_listen: port 7444 is that of rpc_listen as well; give each")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("another key", "key values mismatch"),
        ("over", "has ended"),
        ("none", "No such file"),
    ],
)
def test_a_certificate_is_looked_at(settings: Settings, kind: str, told: str) -> None:
    life = timedelta(seconds=-60) if kind == "over" else timedelta(days=90)
    files = issue(AUTHORITY, settings.folder, life=life)
    if kind == "another key":
        (settings.folder / "other").mkdir()
        files.key.write_bytes(issue(AUTHORITY, settings.folder / "other").key.read_bytes())
    if kind == "none":
        files.key.unlink()
    text = f'tls_certificate = "{files.certificate}"\ntls_key = "{files.key}"\n'
    result = settings.check(text)
    assert result.exit_code == EXIT_CONFIG
    assert f"{settings.path}:4: tls_certificate: " in result.stderr
    assert told in result.stderr


def test_serve_refuses_in_the_same_lines(settings: Settings) -> None:
    text = "max_sesions = 5\ncpu = -1\n"
    checked = settings.told(text)
    served = CliRunner().invoke(main, ["serve", "--config", str(settings.path)])
    assert served.exit_code == EXIT_CONFIG
    lines = served.stderr.replace(f"{settings.path}:", "").splitlines()
    assert lines == checked
    assert len(lines) == 2


@pytest.mark.parametrize("key", AgentConfig.model_fields)
def test_whatever_stands_for_a_key_is_taken_or_told(tmp_path: Path, key: str) -> None:
    assert_taken_or_told(
        tmp_path / "agent.toml",
        key,
        lambda path: list(all_mistakes(load_config(path, {}))),
        SettingsError,
    )
