"""Settings of the agent, and `config check`: all mistakes at once, or the settings."""

import errno
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.cli.main import main
from agent.settings.model import AgentConfig, load_config
from tests.support.settings_files import assert_accepted_or_located
from tiltyard.runtime.settings import EXIT_CONFIG, SettingsError


def run(path: Path, *command: str, **environment: str) -> Result:
    variables = {f"TILTYARD_AGENT_{key}": value for key, value in environment.items()}
    return CliRunner().invoke(main, [*command, "--config", str(path)], env=variables)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.toml"


def reported(path: Path, text: str) -> list[str]:
    """The keys of which `config check` reports a mistake."""
    path.write_text(f'public_address = "127.0.0.1"\n{text}')
    result = run(path, "config", "check", MAX_SESION="7")
    assert result.exit_code == EXIT_CONFIG
    assert result.stdout == ""
    first, *others = result.stderr.splitlines()
    hint = "did you mean TILTYARD_AGENT_MAX_SESSIONS?"
    assert first == f"TILTYARD_AGENT_MAX_SESION: unknown variable; {hint}"
    return [line.split(": ")[1] for line in others]


def test_all_mistakes_are_reported_at_once(path: Path) -> None:
    text = """\
max_sesions = 5
port_range = "1-2"
cpu = 100000000000000000000
env_prefixes = []
firewall_blocked = ["10.0.0.0/8", "10.0.0.1/8"]
log_level = "loud"
failpoint = "nowhere"
"""
    others = "cpu env_prefixes failpoint firewall_blocked[1] log_level max_sesions port_range"
    assert sorted(reported(path, text)) == others.split()
    text = 'tls_key = "/etc/key"\nrpc_listen = "[::]:20001"\nmetrics_listen = "[::1]:20001"\n'
    assert reported(path, text) == ["tls_key", "rpc_listen", "metrics_listen"]


def test_mistakes_of_the_policy_are_reported(path: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("max_cpu = -1\nmax_rams = 2\n")
    path.write_text(f'public_address = "127.0.0.1"\npolicy = "{policy}"\n')
    for command in (["config", "check"], ["serve"]):
        result = run(path, *command)
        assert result.exit_code == EXIT_CONFIG
        found = [line.split(": ")[:2] for line in result.stderr.splitlines()]
        assert found == [[f"{policy}:1", "max_cpu"], [f"{policy}:2", "max_rams"]]


def test_settings_without_mistakes_are_shown(path: Path) -> None:
    path.write_text('public_address = "127.0.0.1"\nmax_sessions = 5\n')
    result = run(path, "config", "check", ENV_PREFIXES="A,B")
    assert result.exit_code == 0
    shown = dict(line.split(" = ", 1) for line in result.stdout.splitlines())
    assert shown.keys() == set(AgentConfig.model_fields)
    assert shown["max_sessions"] == "5"
    assert shown["env_prefixes"] == '["A", "B"]'


@pytest.mark.parametrize("key", AgentConfig.model_fields)
def test_any_value_of_a_key_is_accepted_or_reported(path: Path, key: str) -> None:
    assert_accepted_or_located(path, key, lambda path: load_config(path, {}), SettingsError)


BASE = 'public_address = "192.0.2.1"\n'
ADDRESS = {"TILTYARD_AGENT_PUBLIC_ADDRESS": "192.0.2.1"}


def test_all_settings_but_the_address_have_defaults(path: Path) -> None:
    path.write_text(BASE)
    config = load_config(path, {})
    assert config.ports() == (20000, 30000)
    assert config.env_prefixes == ("TILTYARD",)
    assert config.pinged() == ("192.0.2.1",)
    other = load_config(None, {"TILTYARD_AGENT_LATENCY_ADDRESSES": "192.0.2.9", **ADDRESS})
    assert other.pinged() == ("192.0.2.9",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_sessions = 0\n", "max_sessions"),
        ("prepared = -1\n", "prepared"),
        ("prepared = 1001\n", "prepared"),
        ("cpu = nan\n", "cpu"),
        ("ram = 0\n", "ram"),
        ("stop_grace = -1\n", "stop_grace"),
        ("artifact_spool_bytes = 100000000\n", "artifact_spool_bytes"),
        ('port_range = "20000"\n', "port_range"),
        ('port_range = "80-90"\n', "port_range"),
        ('port_range = "30000-20000"\n', "port_range"),
        ('port_range = "60000-70000"\n', "port_range"),
        ('state_dir = "relative"\n', "state_dir"),
        ('bind_address = "localhost"\n', "bind_address"),
        ('latency_addresses = ["::1"]\n', "latency_addresses"),
        ('env_prefixes = ["A B"]\n', "env_prefixes"),
        ('env_prefixes = ["GAME", "LD"]\n', "LD_… are variables of other programs"),
        ('state_dir = "/"\n', "state_dir: must be a folder of its own"),
        ('state_dir = "/usr/../var/lib/"\n', "state_dir: must be a folder of its own"),
        ('state_dir = "/proc/self"\n', "state_dir: must be a folder of its own"),
        ('firewall_allowed = ["169.254.169.254:80/tcp"]\n', "may be a metadata service"),
        ('firewall_allowed = ["[fe80::1]:80/tcp"]\n', "may be a metadata service"),
        ('firewall_allowed = ["[fd00:ec2::254]:80/tcp"]\n', "may be a metadata service"),
    ],
)
def test_error_names_the_mistake(path: Path, text: str, named: str) -> None:
    path.write_text(BASE + text)
    with pytest.raises(SettingsError, match=named):
        load_config(path, {})


def test_accepts_the_resolver_of_a_cloud(path: Path) -> None:
    path.write_text(BASE + 'firewall_allowed = ["169.254.169.253:53/udp"]\n')
    assert load_config(path, {}).firewall_allowed == ("169.254.169.253:53/udp",)


@pytest.mark.parametrize(
    "folder",
    [
        "/system/tiltyard",
        "/devel/tiltyard",
        "/processes",
    ],
)
def test_accepts_a_folder_with_a_name_that_begins_like_one_of_the_kernel(
    path: Path, folder: str
) -> None:
    path.write_text(BASE + f'state_dir = "{folder}"\n')
    assert load_config(path, {}).state_dir == Path(folder)


@pytest.mark.parametrize(
    "command",
    [
        ("config", "check"),
        ("serve",),
        ("doctor",),
    ],
)
def test_missing_route_is_no_invalid_setting(
    path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A host can boot before its network: systemd must start the agent again."""

    class Unrouted(socket.socket):
        def connect(self, _: object) -> None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("agent.settings.model.socket.socket", Unrouted)
    path.write_text("")
    result = run(path, *command)
    assert result.exit_code == 1
    expected = "tiltyard-agent: public_address is not set, and there is no default route\n"
    assert result.stderr == expected


def test_rejects_unspecified_public_address() -> None:
    with pytest.raises(SettingsError, match="public_address"):
        load_config(None, {"TILTYARD_AGENT_PUBLIC_ADDRESS": "0.0.0.0"})


def test_command_without_an_agent_fails_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--socket", str(tmp_path / "none.sock")])
    assert result.exit_code == 1
    assert result.output.startswith("tiltyard-agent: cannot reach the agent at")
    assert result.output.count("\n") == 1
