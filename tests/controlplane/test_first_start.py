"""The first start creates the state, and leaves the first tokens in a file."""

import asyncio
import json
from pathlib import Path

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.cli.server import first_start
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from tests.support.controlplane.kept_states import rows


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state_dir=tmp_path / "state")


def test_the_file_has_the_tokens_of_the_database(config: Config) -> None:
    kept = config.state_dir / "initial-tokens.json"
    config.state_dir.mkdir()
    kept.write_text("of an earlier state")
    first_start(config)
    before = kept.read_bytes()
    found = json.loads(before)
    texts = (*found["accounts"].values(), found["operator_token"])
    ids = {(text.split("_")[1],) for text in texts}
    assert len(ids) == 2
    assert set(rows(config, "SELECT id FROM token")) == ids
    assert kept.stat().st_mode & 0o777 == 0o600
    first_start(config)
    assert kept.read_bytes() == before


def test_what_init_made_stays(config: Config) -> None:
    asyncio.run(ControlPlane(config).initialise(("alice",)))
    first_start(config)
    assert not (config.state_dir / "initial-tokens.json").exists()


def test_a_file_that_cannot_be_written_ends_the_start(config: Config) -> None:
    (config.state_dir / "initial-tokens.json").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot write .*initial-tokens\.json"):
        first_start(config)
