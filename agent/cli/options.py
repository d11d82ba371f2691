"""What the commands have in common: their options, the agent they ask, and how they fail."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from agent.client.agent_client import AgentClient, ClientError
from agent.doctor.settings_checks import needed
from agent.settings.model import DEFAULT_CONFIG, AgentConfig, load_config
from tiltyard.runtime.settings import report
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.tables import printable

EXIT_FAILED = 1
EXIT_CONFIG = report.EXIT_CONFIG

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


def refuse(error: SettingsError) -> NoReturn:
    """End the command with a line for each mistake."""
    for mistake in error.mistakes:
        click.echo(printable(str(mistake)), err=True)
    sys.exit(EXIT_CONFIG)


def settings_file(path: Path | None) -> Path | None:
    """The file that is asked for, or the one that there is by default."""
    return DEFAULT_CONFIG if path is None and DEFAULT_CONFIG.exists() else path


def read_config(path: Path | None) -> AgentConfig:
    """Read the settings, or end the command."""
    try:
        return load_config(settings_file(path))
    except SettingsError as error:
        refuse(error)


def read_settings(path: Path | None) -> AgentConfig:
    """Read the settings and try what they name, or end the command."""
    config = read_config(path)
    if mistakes := tuple(needed(config)):
        refuse(SettingsError(*mistakes))
    return config


@contextlib.contextmanager
def asked(socket: Path) -> Iterator[AgentClient]:
    """An agent to ask; what it refuses ends the command with one line."""
    try:
        with AgentClient(socket) as agent:
            yield agent
    except ClientError as refusal:
        fail(str(refusal))
