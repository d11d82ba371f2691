"""`init` and the first start: they store tokens once, then print them or write them to a file."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.cli.server import first_start
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from tests.support.controlplane.kept_states import command, rows, settings_of
from tests.support.controlplane.system import System, assert_error, token_id

# Without a buffer nothing would be left to fail at Python's end.
ENVIRONMENT = {**os.environ, "PYTHONPATH": ".", "PYTHONUNBUFFERED": ""}
FILE = "initial-tokens.json"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state_dir=tmp_path / "state")


def made(config: Config, *more: str) -> Any:
    """Run `init`; return what it prints as JSON."""
    result = command(config, "init", "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_another_operator_token_has_no_parent(config: Config) -> None:
    first = made(config)
    second = made(config, "--new-operator-token")
    third = made(config, "--new-operator-token", "--account", "studio")
    assert second["accounts"] == {}
    assert set(third["accounts"]) == {"studio"}
    initial = token_id(first["operator_token"])
    alone = token_id(second["operator_token"])
    beside_an_account = token_id(third["operator_token"])
    stored = rows(config, "SELECT id, account, name, parent, expire_ms FROM token")
    found = {row[0]: row[1:] for row in stored}
    assert found[initial] == (None, "initial", None, None)
    assert found[alone] == (None, f"init-{alone}", None, None)
    assert found[beside_an_account] == (None, f"init-{beside_an_account}", None, None)
    assert made(config, "--account", "studio") == {"accounts": {}, "operator_token": None}


def test_the_first_init_makes_one_operator_token(config: Config) -> None:
    tokens = made(config, "--new-operator-token")
    assert rows(config, "SELECT id FROM token") == [(token_id(tokens["operator_token"]),)]


@pytest.mark.parametrize("name", ["", "a/b"])
def test_an_account_must_have_a_name(config: Config, name: str) -> None:
    result = command(config, "init", "--account", name)
    assert result.exit_code == 2
    assert "--account" in result.output
    assert not config.state_dir.exists()


@pytest.mark.system(agents=0)
async def test_init_works_while_the_control_plane_serves(system: System) -> None:
    tokens = await asyncio.to_thread(made, system.config, "--new-operator-token")
    another = tokens["operator_token"]
    old = system.operator_token
    answer = await system.call("DELETE", f"/operator/token/{token_id(old)}", token=another)
    assert answer.json == {"revoked": [token_id(old)]}
    assert_error(await system.call("GET", "/operator/account", token=old), 401)
    assert (await system.call("GET", "/operator/account", token=another)).status == 200
    sql = "SELECT actor, address FROM event WHERE object=?"
    assert await system.rows(sql, token_id(another)) == [("init", "")]


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_tokens_that_cannot_be_printed_are_an_error(config: Config, redirection: str) -> None:
    command = f"exec '{sys.executable}' -m controlplane init --config '{settings_of(config)}'"
    line = ["bash", "-c", f"{command} {redirection}"]
    done = subprocess.run(line, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert "cannot print the tokens: " in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "ty_" not in done.stderr


def test_the_first_start_writes_its_tokens_to_a_file(config: Config) -> None:
    kept = config.state_dir / FILE
    config.state_dir.mkdir()
    kept.write_text("of an earlier state")
    first_start(config)
    before = kept.read_bytes()
    found = json.loads(before)
    ids = {(token_id(text),) for text in (*found["accounts"].values(), found["operator_token"])}
    assert len(ids) == 2
    assert set(rows(config, "SELECT id FROM token")) == ids
    assert kept.stat().st_mode & 0o777 == 0o600
    first_start(config)
    assert kept.read_bytes() == before


def test_a_start_after_init_makes_no_tokens(config: Config) -> None:
    asyncio.run(ControlPlane(config).initialise(("alice",)))
    first_start(config)
    assert not (config.state_dir / FILE).exists()


def test_a_file_that_cannot_be_written_ends_the_start(config: Config) -> None:
    (config.state_dir / FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot write .*initial-tokens\.json"):
        first_start(config)
