"""The operator commands that set and list registries."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.controlplane.operator_commands import Operated, cells, run, shell
from tests.support.authority import AUTHORITY
from tests.support.controlplane.stub_api import StubApi

PASSWORD = "s3cret wörd"
SET = ("registry", "set", "own", "r.example")


async def set_own(api: StubApi, folder: Path, *options: str) -> Result:
    return await run(*SET, *options, url=api.url, token_file=api.token_file(folder))


def sent(api: StubApi) -> dict[str, Any]:
    [(method, path, body)] = api.requests
    assert method == "PUT"
    assert path == "/operator/registry/own"
    return {name: value for name, value in body.items() if value}


async def test_sends_the_login_and_the_files(api: StubApi, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    password = tmp_path / "password"
    ca.write_text(AUTHORITY)
    password.write_text(f"{PASSWORD}\n")
    login = ("--username", "robot", "--private", "--auth-host", "auth.example", "--alias", "a")
    files = ("--password-file", str(password), "--registry-ca-file", str(ca))
    result = await set_own(api, tmp_path, *login, *files)
    assert result.exit_code == 0
    assert result.output == ""
    assert sent(api) == {
        "address": "r.example",
        "aliases": ["a"],
        "username": "robot",
        "password": PASSWORD,
        "authHosts": ["auth.example"],
        "private": True,
        "ca": AUTHORITY,
    }


async def test_reads_one_secret_from_standard_input(api: StubApi, tmp_path: Path) -> None:
    set_own = "registry set own r.example --username robot --password-file - --token-file"
    status, output, errors = await shell(api.url, f"{set_own} -", typed=api.token)
    assert status == 2
    assert output == ""
    assert "Invalid value for '--password-file': standard input is used for the token" in errors
    command = f"{set_own} {api.token_file(tmp_path)}"
    assert await shell(api.url, command, typed=f"{PASSWORD}\n") == (0, "", "")
    assert sent(api) == {"address": "r.example", "username": "robot", "password": PASSWORD}


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("none", "cannot be read: No such file"),
        ("binary", "is not UTF-8"),
    ],
)
async def test_reports_unreadable_files(
    api: StubApi, tmp_path: Path, name: str, reported: str
) -> None:
    (tmp_path / "binary").write_bytes(b"s3cret\xff")
    result = await set_own(api, tmp_path, "--password-file", str(tmp_path / name))
    assert result.exit_code == 2
    assert f"'--password-file': {tmp_path / name} {reported}" in result.stderr
    assert not api.requests


@pytest.mark.system(kind=Operated)
async def test_the_login_of_a_registry_is_listed(system: Operated, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    login = ("--username", "robot", "--private", "--password-file", str(password))
    assert await system.ok(*SET, *login) == ""
    head, _, own = cells(await system.ok("registry", "list"))
    assert head[:4] == ["NAME", "ADDRESS", "ALIASES", "USERNAME"]
    assert head[4:] == ["PRIVATE", "IN SETTINGS", "APPLICATIONS"]
    assert own == ["own", "r.example", "-", "robot", "yes", "no", "0"]
