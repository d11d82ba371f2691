"""The operators' commands on log-ins of registries."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.storage.tables import registries
from tests.controlplane.test_operator_cli import Operated, cells, run, shell
from tests.support.authority import AUTHORITY
from tests.support.controlplane.stub_api import StubApi

PASSWORD = "s3cret wörd"
SET = ("registry", "set", "own", "r.example")


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[Operated]:
    async with Operated(tmp_path) as running:
        yield running


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    return path


async def password_of(system: Operated) -> str:
    row = await system.control_plane._store.run(registries.get, "own")
    assert row is not None
    return system.control_plane._logins.endpoint_of(row).password


async def test_a_log_in_is_set_shown_and_kept(
    system: Operated, password: Path, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(AUTHORITY)
    login = ("--username", "robot", "--private", "--auth-host", "auth.example")
    files = ("--password-file", str(password), "--registry-ca-file", str(ca))
    assert await system.ok(*SET, *login, *files) == ""
    head, _, own = cells(await system.ok("registry", "list"))
    assert head == [
        *("NAME", "ADDRESS", "ALIASES", "USERNAME", "PRIVATE", "IN SETTINGS", "APPLICATIONS")
    ]
    assert own == ["own", "r.example", "-", "robot", "yes", "no", "0"]
    shown = json.loads(await system.ok("registry", "list", "--json"))["registries"][1]
    assert (shown["ca"], shown["authHosts"]) == (AUTHORITY, ["auth.example"])
    assert await system.ok(*SET, *login, "--registry-ca-file", str(ca)) == ""
    assert await password_of(system) == PASSWORD
    assert await system.refused(*SET, "--username", "another") == (
        "cannot set the registry: invalid request\n"
        "  password: must be given: none is kept for this username, address, authHosts, private"
        " and ca\n"
    )
    assert await system.ok(*SET) == ""
    assert cells(await system.ok("registry", "list"))[2][3:5] == ["-", "no"]


async def test_a_password_comes_on_standard_input(system: Operated, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(system.operator_token)
    command = f"registry set own r.example --token-file {token} --username robot --password-file -"
    assert await shell(system, command, stdin=f"{PASSWORD}\n".encode()) == (0, b"", b"")
    assert await password_of(system) == PASSWORD


async def test_a_file_that_is_too_large_is_refused(system: Operated, tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * 65537)
    large = str(tmp_path / "large")
    reported = await system.refused(*SET, "--username", "u", "--password-file", large)
    assert reported.startswith("cannot set the registry: invalid request\n  password: ")
    reported = await system.refused(*SET, "--registry-ca-file", large)
    assert reported.startswith("cannot set the registry: invalid request\n  ca: ")


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ("--password-file {none}", "'--password-file': {none} cannot be read: No such file"),
        ("--registry-ca-file {none}", "'--registry-ca-file': {none} cannot be read: No such"),
        ("--password-file {binary}", "'--password-file': {binary} is not UTF-8"),
    ],
)
async def test_what_cannot_be_read_is_reported(
    tmp_path: Path, options: str, reported: str
) -> None:
    files = {"none": tmp_path / "none", "binary": tmp_path / "binary"}
    files["binary"].write_bytes(b"s3cret\xff")
    async with StubApi() as api:
        token, given = api.token_file(tmp_path), options.format(**files).split()
        result = await run(*SET, *given, url=api.url, token_file=token)
        assert result.exit_code == 2
        assert reported.format(**files) in result.stderr
        assert not api.requests


async def test_standard_input_holds_one_secret(system: Operated) -> None:
    command = "registry set own r.example --token-file - --username robot --password-file -"
    status, output, errors = await shell(system, command, stdin=system.operator_token.encode())
    assert (status, output) == (2, b"")
    assert b"Invalid value for '--password-file': standard input has the token" in errors
