"""`tiltyard-agent config`: check or show the settings."""

from pathlib import Path

import click

from agent.cli.options import AS_JSON
from agent.cli.settings_options import CONFIG, settings_file
from agent.doctor.settings_checks import all_mistakes
from agent.settings.model import read_config
from tiltyard.runtime.settings.mistakes import SettingsError
from tiltyard.runtime.settings.report import refuse, report


@click.group()
def config() -> None:
    """Check the settings."""


@config.command()
@CONFIG
@AS_JSON
@click.option("--strict", is_flag=True, help="Fail on warnings as well.")
def check(path: Path | None, *, as_json: bool, strict: bool) -> None:
    """Report all mistakes in the settings, or show the settings and their origins."""
    try:
        reading = read_config(settings_file(path))
    except SettingsError as error:
        refuse(error)
    report(reading, all_mistakes, as_json=as_json, strict=strict)
