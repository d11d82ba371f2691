"""The first start: whenever it breaks off, the first tokens are neither lost nor false."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from sqlite_utils import Database

from controlplane.app.control_plane import ControlPlane
from controlplane.cli.server import first_start
from controlplane.settings.model import Config

OLD = '{"accounts": {"default": "ty_old"}, "operator_token": "ty_old"}'
BREAK_OFF = """
import os, pathlib, sys
from controlplane.cli import server
from controlplane.catalog.accounts import Accounts, InitialTokens
from controlplane.settings.model import Config

def die(*_):
    os._exit(7)

setattr(*{
    "before the draft": (InitialTokens, "save", die),
    "before the commit": (Accounts, "initialise_with", die),
    "before the rename": (pathlib.Path, "replace", die),
}[sys.argv[2]])
server.first_start(Config(state_dir=pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state_dir=tmp_path / "state")


def _kept(config: Config) -> Path:
    return config.state_dir / "initial-tokens.json"


def _assert_tokens_work(config: Config) -> None:
    """The file has the tokens of the database, for its owner alone, and no draft is left."""
    found = json.loads(_kept(config).read_text("utf-8"))
    ids = {text.split("_")[1] for text in (*found["accounts"].values(), found["operator_token"])}
    db = Database(str(config.database))
    assert {row[0] for row in db.execute("SELECT id FROM token")} == ids
    db.close()
    assert len(ids) == 2
    assert _kept(config).stat().st_mode & 0o777 == 0o600
    assert not list(config.state_dir.glob("*.draft"))


def test_a_left_over_file_is_replaced(config: Config) -> None:
    config.state_dir.mkdir()
    _kept(config).write_text(OLD)
    first_start(config)
    _assert_tokens_work(config)


@pytest.mark.parametrize("moment", ["before the draft", "before the commit", "before the rename"])
async def test_a_first_start_that_breaks_off_is_taken_up_again(
    config: Config, moment: str
) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BREAK_OFF, str(config.state_dir), moment),
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert await child.wait() == 7
    assert not _kept(config).exists()
    await asyncio.to_thread(first_start, config)
    _assert_tokens_work(config)


@pytest.mark.parametrize("torn", ["", '{"accounts": {"def'])
def test_an_unfinished_draft_is_recreated(config: Config, torn: str) -> None:
    config.state_dir.mkdir()
    _kept(config).with_suffix(".draft").write_text(torn)
    first_start(config)
    _assert_tokens_work(config)


def test_a_draft_of_another_database_is_not_kept(config: Config) -> None:
    first_start(config)
    before = _kept(config).read_bytes()
    _kept(config).with_suffix(".draft").write_text("")
    first_start(config)
    assert _kept(config).read_bytes() == before
    _assert_tokens_work(config)


def test_what_init_made_stays(config: Config) -> None:
    asyncio.run(ControlPlane(config).initialise(("alice",)))
    first_start(config)
    assert not _kept(config).exists()
