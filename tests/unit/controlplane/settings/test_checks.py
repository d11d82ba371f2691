from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controlplane.cli.main import main
from controlplane.settings.model import Config, load_config
from tests.support.authority import AUTHORITY
from tests.support.settings_files import assert_accepted_or_located
from tiltyard.runtime.settings import EXIT_CONFIG, SettingsError

SECRET = "s3cret-pass"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "controlplane.toml"


def run(path: Path, *command: str) -> Result:
    return CliRunner().invoke(main, [*command, "--config", str(path)])


def test_check_serve_and_init_report_the_same_mistakes(path: Path) -> None:
    path.write_text("regoins = 1\nstart_burst = 0\n")
    checked = run(path, "config", "check")
    assert checked.exit_code == EXIT_CONFIG
    assert checked.stdout == ""
    keys = [line.split(": ")[1] for line in checked.stderr.splitlines()]
    assert keys == ["start_burst", "regoins"]
    for command in ("serve", "init"):
        refused = run(path, command)
        assert refused.exit_code == EXIT_CONFIG
        assert refused.stderr == checked.stderr


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_settings_are_shown_without_secrets(path: Path, mode: int) -> None:
    password = path.with_name("password")
    ca = path.with_name("ca.pem")
    password.write_text(SECRET)
    password.chmod(mode)
    ca.write_text(AUTHORITY)
    registry = f'name = "one"\naddress = "h.example"\nusername = "robot"\nca_file = "{ca}"\n'
    path.write_text(f'start_burst = 7\n[[registries]]\n{registry}password_file = "{password}"\n')
    result = run(path, "config", "check")
    assert SECRET not in result.output
    assert "BEGIN CERTIFICATE" not in result.output
    if mode == 0o600:
        shown = dict(line.split(" = ", 1) for line in result.stdout.splitlines())
        assert shown.keys() == set(Config.model_fields)
        assert shown["start_burst"] == "7"
        assert '"username": "robot"' in shown["registries"]
    else:
        assert result.exit_code == EXIT_CONFIG
        assert "run `chmod 600" in result.stderr


@pytest.mark.parametrize("key", Config.model_fields)
def test_any_value_of_a_key_is_accepted_or_reported(path: Path, key: str) -> None:
    assert_accepted_or_located(path, key, lambda path: load_config(path, {}), SettingsError)
