"""The terminal: output errors are detected, and confirmations come from a person."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import click

from tiltyard.runtime.tables import printable

TERMINAL = Path("/dev/tty")
"""The terminal that the command was started from, wherever its standard input comes from."""


def echo(text: str) -> None:
    """Print a line on standard output.

    Raises:
        OSError: It cannot be printed, also because the output was closed from the beginning.
    """
    if getattr(sys, "stdout", None) is None:  # click would print nothing and say nothing
        raise OSError("the standard output is closed")
    try:
        click.echo(text)
    except OSError:
        _drop_what_is_left(sys.stdout)
        raise


def remark(text: str) -> None:
    """Print a line on standard error; ignore errors."""
    try:
        click.echo(text, err=True)
    except OSError:
        _drop_what_is_left(sys.stderr)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless `yes`; standard input may be the token's.

    Raises:
        click.UsageError: There is no terminal.
        click.Abort: No.
    """
    if yes:
        return
    try:
        with TERMINAL.open("w", encoding="utf-8", errors="replace") as terminal:
            terminal.write(f"{printable(question)} [y/N]: ")
        with TERMINAL.open(encoding="utf-8", errors="replace") as terminal:
            answer = terminal.readline()
    except OSError:
        text = "there is no terminal to ask at: --yes continues without"
        raise click.UsageError(text, click.get_current_context()) from None
    if answer.strip().lower() not in {"y", "yes"}:
        raise click.Abort


def _drop_what_is_left(stream: TextIO) -> None:
    """Drop what could not be printed: Python would try again at its end, and fail aloud."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
