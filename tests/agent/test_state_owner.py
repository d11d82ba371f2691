"""An agent that root starts by hand beside the service's records leaves them alone."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.main import main
from agent.state.state_format import another_owner
from tiltyard.runtime.settings import EXIT_CONFIG

pytestmark = pytest.mark.root


@pytest.mark.parametrize(("user", "name"), [(65534, "nobody"), (65533, "the user 65533")])
def test_it_does_not_start_in_the_folder_of_another_user(
    tmp_path: Path, user: int, name: str
) -> None:
    state, settings = tmp_path / "state", tmp_path / "agent.toml"
    state.mkdir()
    os.chown(state, user, user)
    settings.write_text(f'state_dir = "{state}"\npublic_address = "192.0.2.1"\n')
    refused = CliRunner().invoke(main, ["serve", "--config", str(settings)])
    assert refused.exit_code == EXIT_CONFIG
    assert f"it does not start: {state} belongs to {name}, who could not read" in refused.stderr
    assert list(state.iterdir()) == []


def test_a_folder_of_its_own_or_none_is_fine(tmp_path: Path) -> None:
    assert another_owner(tmp_path) == another_owner(tmp_path / "none") == ""
