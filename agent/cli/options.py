"""Options and helpers of all commands; commands import what only they need when they run."""

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from agent.client.agent_client import AgentClient, ClientError
from agent.domain.paths import AGENT_SOCKET, DEFAULT_CONFIG
from tiltyard.runtime.tables import discard_buffer, printable

EXIT_FAILED = 1

SOCKET = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    envvar="TILTYARD_AGENT_SOCKET",
    default=AGENT_SOCKET,
    show_default=True,
    help="The agent's unix socket.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")

CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Settings file; {DEFAULT_CONFIG} when it exists, else the defaults.",
)


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """End the command with one line on standard error."""
    click.echo(f"tiltyard-agent: {printable(text)}", err=True)
    sys.exit(code)


@contextlib.contextmanager
def asked(socket: Path) -> Iterator[AgentClient]:
    """Connect to the agent; an error, also of the output, ends the command with one line."""
    if getattr(sys, "stdout", None) is None:  # click would print nothing, without an error
        fail("nothing was done, since the standard output is closed: redirect it to /dev/null")
    try:
        with AgentClient(socket) as agent:
            yield agent
        sys.stdout.flush()
    except ClientError as refusal:
        fail(str(refusal))
    except OSError as error:
        discard_buffer(sys.stdout)
        if error.errno == errno.EPIPE:  # click exits silently
            raise
        fail(f"cannot print the response: {error}")
