"""Common parts of commands that read the settings."""

from pathlib import Path

import click

from agent.doctor.settings_checks import needed
from agent.settings.model import DEFAULT_CONFIG, AgentConfig, load_config
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.settings.report import refuse

CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Settings file; {DEFAULT_CONFIG} when it exists, else the defaults.",
)


def settings_file(path: Path | None) -> Path | None:
    """The file of the option, or the default one if it exists."""
    return DEFAULT_CONFIG if path is None and DEFAULT_CONFIG.exists() else path


def read_config(path: Path | None) -> AgentConfig:
    """Read the settings, or end the command."""
    try:
        return load_config(settings_file(path))
    except SettingsError as error:
        refuse(error)


def read_settings(path: Path | None) -> AgentConfig:
    """Read the settings and check what they refer to, or end the command."""
    config = read_config(path)
    if mistakes := tuple(needed(config)):
        refuse(SettingsError(*mistakes))
    return config
