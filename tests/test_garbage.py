"""Both programs collect garbage while they serve, though not while they import their modules."""

import gc
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agent.cli.main import main as agent
from controlplane.cli.main import main as controlplane


@pytest.mark.parametrize("program", [agent, controlplane], ids=["agent", "controlplane"])
def test_garbage_is_collected_once_a_program_is_imported(
    program: click.Group, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("no_such_setting = 1\n")
    assert CliRunner().invoke(program, ["serve", "--config", str(wrong)]).exit_code != 0
    assert gc.isenabled()
