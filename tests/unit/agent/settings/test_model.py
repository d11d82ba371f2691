from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.main import main
from agent.settings.model import load_config
from tiltyard.runtime.settings import SettingsError

BASE = 'public_address = "192.0.2.1"\n'
ADDRESS = {"TILTYARD_AGENT_PUBLIC_ADDRESS": "192.0.2.1"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(BASE + text)
    return path


def test_all_settings_but_the_address_have_defaults(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, ""), {})
    assert config.ports() == (20000, 30000)
    assert config.env_prefixes == ("TILTYARD",)
    assert config.pinged() == ("192.0.2.1",)
    other = load_config(None, {"TILTYARD_AGENT_LATENCY_ADDRESSES": "192.0.2.9", **ADDRESS})
    assert other.pinged() == ("192.0.2.9",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("cpu = nan\n", "cpu"),
        ("artifact_spool_bytes = 100000000\n", "artifact_spool_bytes"),
        ('port_range = "30000-20000"\n', "port_range"),
        ('port_range = "60000-70000"\n', "port_range"),
        ('state_dir = "relative"\n', "state_dir"),
        ('bind_address = "localhost"\n', "bind_address"),
        ('latency_addresses = ["::1"]\n', "latency_addresses"),
        ('env_prefixes = ["A B"]\n', "env_prefixes"),
    ],
)
def test_error_names_the_mistake(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load_config(written(tmp_path, text), {})


def test_rejects_unspecified_public_address() -> None:
    with pytest.raises(SettingsError, match="public_address"):
        load_config(None, {"TILTYARD_AGENT_PUBLIC_ADDRESS": "0.0.0.0"})


def test_command_without_an_agent_fails_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--socket", str(tmp_path / "none.sock")])
    assert result.exit_code == 1
    assert result.output.startswith("tiltyard-agent: cannot reach the agent at")
    assert result.output.count("\n") == 1
