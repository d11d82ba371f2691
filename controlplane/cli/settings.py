"""What commands do with the settings: load them, and check them. Mistakes end a command."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from controlplane.settings.checks import all_mistakes
from controlplane.settings.model import Config, load_config, read_config
from tiltyard.runtime.settings.mistakes import SettingsError, in_order
from tiltyard.runtime.settings.report import EXIT_CONFIG, Report, report
from tiltyard.runtime.tables import printable

_HIDDEN = {"registries": {"__all__": {"password", "ca"}}}
"""What the files hold that keys of a registry name."""


def load(path: Path) -> Config:
    """Read the settings, or end the command."""
    try:
        return load_config(path)
    except SettingsError as error:
        _refuse(error)


def checked(path: Path, *, as_json: bool, strict: bool) -> Report:
    """Look at the settings of a file and at all that they point to."""
    try:
        source, config, mistakes = read_config(path)
    except SettingsError as error:
        _refuse(error)
    if config is not None:
        mistakes += tuple(map(source.located, all_mistakes(config)))
    shown = {} if config is None else config.model_dump(mode="json", exclude=_HIDDEN)
    return report(shown, source, in_order(mistakes), as_json=as_json, strict=strict)


def _refuse(error: SettingsError) -> NoReturn:
    """End the command with a line for each mistake."""
    for mistake in error.mistakes:
        click.echo(printable(str(mistake)), err=True)
    sys.exit(EXIT_CONFIG)
