"""Commands' access to the settings: load and check them. Mistakes end a command."""

from pathlib import Path
from typing import NoReturn

from controlplane.settings.checks import all_mistakes
from controlplane.settings.model import Config, load_config, read_config
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.settings.report import refuse, report

_SECRET = {"registries": {"__all__": {"password", "ca"}}}
"""Contents of the files named in a registry's settings."""


def load(path: Path) -> Config:
    """Read the settings, or end the command."""
    try:
        return load_config(path)
    except SettingsError as error:
        refuse(error)


def check(path: Path, *, as_json: bool, strict: bool) -> NoReturn:
    """Check the settings of a file and what they refer to, and end the command."""
    try:
        reading = read_config(path)
    except SettingsError as error:
        refuse(error)
    report(reading, all_mistakes, secret=_SECRET, as_json=as_json, strict=strict)
