"""`tiltyard-agent config`: what is wrong with the settings, or what they are."""

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
    """Look at the settings."""


@config.command()
@CONFIG
@AS_JSON
@click.option("--strict", is_flag=True, help="Fail for warnings, too.")
def check(path: Path | None, *, as_json: bool, strict: bool) -> None:
    """Say all that is wrong with the settings, or show them and where each comes from."""
    try:
        reading = read_config(settings_file(path))
    except SettingsError as error:
        refuse(error)
    report(reading, all_mistakes, as_json=as_json, strict=strict)
