"""Commands' access to the settings. Mistakes end a command."""

from pathlib import Path

from controlplane.settings.model import Config, load_config
from tiltyard.runtime.settings import SettingsError, refuse, show

_SECRET = {"registries": {"__all__": {"password", "ca"}}}
"""Contents of the files named in a registry's settings."""


def load(path: Path) -> Config:
    """Read the settings, or end the command."""
    try:
        return load_config(path)
    except SettingsError as error:
        refuse(error)


def check(path: Path) -> None:
    """Show the settings, or end the command with all mistakes."""
    show(load(path), _SECRET)
