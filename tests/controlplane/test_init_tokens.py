"""`init`: tokens are printed once they are stored, and are not lost when they cannot be."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlite_utils import Database

from controlplane.cli.main import main
from tests.support.controlplane.system import System, assert_error

# Without a buffer nothing would be left to fail at Python's end.
ENVIRONMENT = {**os.environ, "PYTHONPATH": ".", "PYTHONUNBUFFERED": ""}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "controlplane.toml"
    path.write_text(f'state_dir = "{tmp_path / "state"}"\n')
    return path


def init(settings: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["init", "--config", str(settings), *more])


def made(settings: Path, *more: str) -> Any:
    result = init(settings, "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def stored(settings: Path) -> dict[str, tuple[Any, ...]]:
    db = Database(str(settings.parent / "state" / "controlplane.db"))
    rows = db.execute("SELECT id, account, name, parent, expire_ms FROM token").fetchall()
    db.close()
    return {row[0]: row[1:] for row in rows}


def id_of(token: str) -> str:
    return token.split("_")[1]


def test_one_more_operators_token_is_nobodys_child(settings: Path) -> None:
    first = made(settings)
    second = made(settings, "--new-operator-token")
    third = made(settings, "--new-operator-token", "--account", "studio")
    assert second["accounts"] == {}
    assert set(third["accounts"]) == {"studio"}
    operators = [id_of(one["operator_token"]) for one in (first, second, third)]
    found = stored(settings)
    assert [found[one] for one in operators] == [
        (None, "initial", None, None),
        *((None, f"init-{one}", None, None) for one in operators[1:]),
    ]
    assert made(settings, "--account", "studio") == {"accounts": {}, "operator_token": None}


def test_the_first_operators_token_is_one_even_if_one_more_is_asked_for(settings: Path) -> None:
    tokens = made(settings, "--new-operator-token")
    assert set(stored(settings)) == {id_of(tokens["operator_token"])}


@pytest.mark.parametrize("name", ["", "..", "a b", "a/b"])
def test_an_account_must_have_a_name(settings: Path, name: str) -> None:
    result = init(settings, "--account", name)
    assert result.exit_code == 2
    assert "--account" in result.output
    assert not (settings.parent / "state").exists()


async def test_it_works_while_the_control_plane_serves(tmp_path: Path) -> None:
    async with System(tmp_path, agents=0) as system:
        path = tmp_path / "controlplane.toml"
        path.write_text(f'state_dir = "{system.config.state_dir}"\n')
        tokens = await asyncio.to_thread(made, path, "--new-operator-token")
        another, old = tokens["operator_token"], system.operator_token
        answer = await system.call("DELETE", f"/operator/token/{id_of(old)}", token=another)
        assert answer.json == {"revoked": [id_of(old)]}
        assert_error(await system.call("GET", "/operator/account", token=old), 401)
        assert (await system.call("GET", "/operator/account", token=another)).status == 200
        sql = "SELECT actor, address FROM event WHERE object=?"
        assert await system.rows(sql, id_of(another)) == [("init", "")]


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_tokens_that_cannot_be_printed_are_an_error(settings: Path, redirection: str) -> None:
    command = f"exec '{sys.executable}' -m controlplane init --config '{settings}' {redirection}"
    done = subprocess.run(
        ["bash", "-c", command], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 1
    assert "cannot print the tokens: " in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "ty_" not in done.stderr
