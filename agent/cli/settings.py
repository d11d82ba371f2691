"""Reads the settings for commands."""

from pathlib import Path

from agent.cli.options import fail
from agent.domain.paths import DEFAULT_CONFIG
from agent.settings.model import AgentConfig, NoRouteError, load_config
from agent.settings.policy import load_policy
from tiltyard.runtime.settings import SettingsError, refuse


def read_config(path: Path | None) -> AgentConfig:
    """Read the settings, by default from DEFAULT_CONFIG if it exists, or end the command.

    Without a default route, the command ends with EXIT_FAILED, after which systemd restarts it.
    """
    try:
        return load_config(DEFAULT_CONFIG if path is None and DEFAULT_CONFIG.exists() else path)
    except SettingsError as error:
        refuse(error)
    except NoRouteError as error:
        fail(str(error))


def read_settings(path: Path | None) -> AgentConfig:
    """Read the settings and validate their policy, or end the command."""
    config = read_config(path)
    try:
        load_policy(config.policy)
    except SettingsError as error:
        refuse(error)
    return config
