"""Common parts of commands that read the settings."""

from pathlib import Path

import click

from agent.settings.model import DEFAULT_CONFIG, AgentConfig, load_config
from agent.settings.policy import load_policy
from tiltyard.runtime.settings import SettingsError, refuse

CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Settings file; {DEFAULT_CONFIG} when it exists, else the defaults.",
)


def read_config(path: Path | None) -> AgentConfig:
    """Read the settings, of the default file if there is one, or end the command."""
    try:
        return load_config(DEFAULT_CONFIG if path is None and DEFAULT_CONFIG.exists() else path)
    except SettingsError as error:
        refuse(error)


def read_settings(path: Path | None) -> AgentConfig:
    """Read the settings and the policy that they name, or end the command."""
    config = read_config(path)
    try:
        load_policy(config.policy)
    except SettingsError as error:
        refuse(error)
    return config
