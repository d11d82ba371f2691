"""Terminal output with error detection, and confirmation prompts."""

import sys
from pathlib import Path

import click

from tiltyard.runtime.tables import discard_buffer, printable

TERMINAL = Path("/dev/tty")  # The controlling terminal, regardless of standard input


def echo(text: str) -> None:
    """Print a line on standard output. OSError if that is closed or fails."""
    if getattr(sys, "stdout", None) is None:  # click would ignore this silently
        raise OSError("the standard output is closed")
    try:
        click.echo(text)
    except OSError:
        discard_buffer(sys.stdout)
        raise


def remark(text: str) -> None:
    """Print a line on standard error; ignore errors."""
    try:
        click.echo(text, err=True)
    except OSError:
        discard_buffer(sys.stderr)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless `yes`. Standard input may hold the token.

    Raises:
        click.UsageError: There is no terminal.
        click.Abort: The answer is no.
    """
    if yes:
        return
    try:
        with TERMINAL.open("w", encoding="utf-8", errors="replace") as terminal:
            terminal.write(f"{printable(question)} [y/N]: ")
        with TERMINAL.open(encoding="utf-8", errors="replace") as terminal:
            answer = terminal.readline()
    except OSError:
        text = "no terminal to ask for confirmation: use --yes"
        raise click.UsageError(text, click.get_current_context()) from None
    if answer.strip().lower() not in {"y", "yes"}:
        raise click.Abort
