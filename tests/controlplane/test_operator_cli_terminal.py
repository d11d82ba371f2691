"""Operator commands with and without a terminal: confirmations and output."""

import asyncio
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from controlplane.domain.access import tokens
from tests.support.controlplane.commands import finished
from tests.support.controlplane.stub_api import StubApi

MODULE = [sys.executable, "-m", "controlplane"]
AT_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""
TOKEN = tokens.mint()
MADE = {"name": "studio", "id": TOKEN.token_id, "token": TOKEN.text}


def environment(api: StubApi, folder: Path) -> dict[str, str]:
    file = str(api.token_file(folder))
    # Only buffered output can fail when Python exits.
    return {"TILTYARD_URL": api.url, "TILTYARD_TOKEN_FILE": file, "PYTHONUNBUFFERED": ""}


# ---- confirmations


async def at_a_terminal(
    api: StubApi, folder: Path, command: str, keys: str, *, stdin: str = ""
) -> tuple[int | None, str, str]:
    """Run a command whose terminal is not its input; return exit code, terminal and errors."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb+", buffering=0) as terminal, os.fdopen(theirs) as other_end:
        terminal.write(keys.encode())
        start = [sys.executable, "-c", AT_A_TERMINAL, str(theirs), *MODULE]
        start += command.split()
        status, _, errors = await finished(
            *start, typed=stdin, env=environment(api, folder), pass_fds=(theirs,)
        )
        other_end.close()
        return status, await asyncio.to_thread(_seen, ours), errors


def _seen(terminal: int) -> str:
    """Read all output of a terminal whose other end is closed."""
    found = b""
    with suppress(OSError):  # EIO is the end
        while part := os.read(terminal, 65536):
            found += part
    return found.decode()


async def test_deletion_asks_for_confirmation(api: StubApi, tmp_path: Path) -> None:
    answers = (("\n", False), ("n\n", False), ("\x04", False), ("Yes\n", True))
    for number, (keys, confirmed) in enumerate(answers):
        status, seen, _ = await at_a_terminal(api, tmp_path, "account delete studio", keys)
        assert (status == 0) == confirmed
        assert len(api.requests) == confirmed, number
        assert "Delete the account studio and all that it owns? [y/N]" in seen


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("n\n", 1),
        ("y\n", 0),
    ],
)
async def test_asks_on_the_terminal_while_standard_input_is_the_token(
    api: StubApi, tmp_path: Path, keys: str, code: int
) -> None:
    command = "account delete studio --token-file -"
    status, seen, errors = await at_a_terminal(api, tmp_path, command, keys, stdin=api.token)
    assert status == code, errors
    assert len(api.requests) == 1 - code, errors
    assert "Delete the account studio" in seen
    assert api.token not in seen


@pytest.mark.parametrize("command", ["account delete a", "agent remove a", "token revoke a"])
async def test_deletion_without_a_terminal_requires_yes(
    api: StubApi, tmp_path: Path, command: str
) -> None:
    api.answers["DELETE", "/operator/token/a"] = {"revoked": []}
    for more, code, calls in ((), 2, 0), (("--yes",), 0, 1):
        status, _, errors = await finished(
            *MODULE,
            *command.split(),
            "--token-file",
            "-",
            *more,
            typed=api.token,
            env=environment(api, tmp_path),
            start_new_session=True,
        )
        assert status == code, errors
        assert len(api.requests) == calls, errors
        assert ("--yes" in errors) == (code == 2)


# ---- failing output


SHELLS = [
    "exec {} >/dev/full",
    "exec {} --json >&-",
    "exec 3> >(exec true); wait $!; exec {} >&3",  # the reader has exited
]


@pytest.mark.parametrize("shell", SHELLS)
async def test_unprinted_token_can_be_revoked(api: StubApi, tmp_path: Path, shell: str) -> None:
    api.answers["POST", "/operator/account"] = MADE
    line = shell.format(f"'{sys.executable}' -m controlplane account create studio")
    status, output, errors = await finished("bash", "-c", line, env=environment(api, tmp_path))
    assert status == 1
    assert output == ""
    assert "cannot print the token: " in errors
    assert f"token revoke {TOKEN.token_id}`" in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    assert TOKEN.text not in errors


async def test_a_token_is_printed_even_if_standard_error_fails(
    api: StubApi, tmp_path: Path
) -> None:
    api.answers["POST", "/operator/account"] = MADE
    line = f"exec '{sys.executable}' -m controlplane account create studio 2>/dev/full"
    status, output, _ = await finished("bash", "-c", line, env=environment(api, tmp_path))
    assert status == 0
    assert output == f"{TOKEN.text}\n"


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
async def test_reports_a_failed_output(api: StubApi, tmp_path: Path, redirection: str) -> None:
    api.answers["GET", "/operator/region"] = {"regions": []}
    line = f"exec '{sys.executable}' -m controlplane region list {redirection}"
    status, _, errors = await finished("bash", "-c", line, env=environment(api, tmp_path))
    assert status == 1
    why = os.strerror(errno.ENOSPC) if "full" in redirection else "the standard output is closed"
    assert errors.startswith("cannot print the response: ")
    assert errors.endswith(f"{why}\n")
    assert errors.count("\n") == 1
