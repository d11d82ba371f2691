"""Operator commands for registry logins."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.controlplane.test_operator_cli import run, shell
from tests.support.authority import AUTHORITY
from tests.support.controlplane.stub_api import StubApi

PASSWORD = "s3cret wörd"
SET = ("registry", "set", "own", "r.example")


async def set_own(api: StubApi, folder: Path, *options: str) -> Result:
    return await run(*SET, *options, url=api.url, token_file=api.token_file(folder))


def sent(api: StubApi) -> dict[str, Any]:
    [(method, path, body)] = api.requests
    assert (method, path) == ("PUT", "/operator/registry/own")
    return {name: value for name, value in body.items() if value}


async def test_sends_the_login_and_the_files(api: StubApi, tmp_path: Path) -> None:
    ca, password = tmp_path / "ca.pem", tmp_path / "password"
    ca.write_text(AUTHORITY)
    password.write_text(f"{PASSWORD}\n")
    login = ("--username", "robot", "--private", "--auth-host", "auth.example", "--alias", "a")
    files = ("--password-file", str(password), "--registry-ca-file", str(ca))
    result = await set_own(api, tmp_path, *login, *files)
    assert (result.exit_code, result.output) == (0, "")
    assert sent(api) == {
        "address": "r.example",
        "aliases": ["a"],
        "username": "robot",
        "password": PASSWORD,
        "authHosts": ["auth.example"],
        "private": True,
        "ca": AUTHORITY,
    }


async def test_reads_a_password_from_standard_input(api: StubApi, tmp_path: Path) -> None:
    command = f"registry set own r.example --token-file {api.token_file(tmp_path)}"
    command += " --username robot --password-file -"
    assert await shell(api.url, command, typed=f"{PASSWORD}\n") == (0, "", "")
    assert sent(api) == {"address": "r.example", "username": "robot", "password": PASSWORD}


@pytest.mark.parametrize(
    ("name", "reported"), [("none", "cannot be read: No such file"), ("binary", "is not UTF-8")]
)
async def test_reports_unreadable_files(
    api: StubApi, tmp_path: Path, name: str, reported: str
) -> None:
    (tmp_path / "binary").write_bytes(b"s3cret\xff")
    result = await set_own(api, tmp_path, "--password-file", str(tmp_path / name))
    assert result.exit_code == 2
    assert f"'--password-file': {tmp_path / name} {reported}" in result.stderr
    assert not api.requests


async def test_rejects_two_secrets_on_standard_input(api: StubApi) -> None:
    command = "registry set own r.example --token-file - --username robot --password-file -"
    status, output, errors = await shell(api.url, command, typed=api.token)
    assert (status, output) == (2, "")
    assert "Invalid value for '--password-file': standard input is used for the token" in errors
