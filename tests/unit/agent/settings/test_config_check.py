"""`config check` of the agent: all mistakes at once, or the settings."""

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
    assert sorted(reported(path, text)) == [
        "cpu",
        "env_prefixes",
        "failpoint",
        "firewall_blocked[1]",
        "log_level",
        "max_sesions",
        "port_range",
    ]
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
    assert (shown["max_sessions"], shown["env_prefixes"]) == ("5", '["A", "B"]')


@pytest.mark.parametrize("key", AgentConfig.model_fields)
def test_any_value_of_a_key_is_accepted_or_reported(path: Path, key: str) -> None:
    assert_accepted_or_located(path, key, lambda path: load_config(path, {}), SettingsError)
