"""What the commands have in common: their options, the agent they ask, and how they fail."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from agent.cli.client import AgentClient, ClientError
from agent.cli.tables import printable
from agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, load_config
from agent.failpoints import failpoint
from agent.policy import PolicyError, load_policy

EXIT_FAILED = 1
EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: starting again without an edit is no use."""

CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Settings file; {DEFAULT_CONFIG} when it exists, else the defaults.",
)
SOCKET = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    envvar="TILTYARD_AGENT_SOCKET",
    default=AgentConfig.model_fields["socket"].default,
    show_default=True,
    help="The agent's unix socket.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """End the command with one line on standard error."""
    click.echo(f"tiltyard-agent: {printable(text)}", err=True)
    sys.exit(code)


def read_config(path: Path | None) -> AgentConfig:
    """Read the settings, or end the command."""
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    try:
        return load_config(path)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)


def read_settings(path: Path | None) -> AgentConfig:
    """Read the settings and try what they name, or end the command."""
    config = read_config(path)
    try:
        failpoint(config.failpoint)
        load_policy(config.policy)
    except (PolicyError, ValueError) as error:
        fail(str(error), EXIT_CONFIG)
    return config


@contextlib.contextmanager
def asked(socket: Path) -> Iterator[AgentClient]:
    """An agent to ask; what it refuses ends the command with one line."""
    try:
        with AgentClient(socket) as agent:
            yield agent
    except ClientError as refusal:
        fail(str(refusal))
