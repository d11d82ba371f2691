"""`tiltyard-agent config`: what is wrong with the settings, or what they are."""

import sys
from pathlib import Path

import click

from agent.cli.options import AS_JSON
from agent.cli.settings_options import CONFIG, refuse, settings_file
from agent.doctor.settings_checks import all_mistakes
from agent.settings.model import read_config
from tiltyard.runtime.settings.mistakes import SettingsError, in_order
from tiltyard.runtime.settings.report import report
from tiltyard.runtime.tables import printable


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
        source, settings, mistakes = read_config(settings_file(path))
    except SettingsError as error:
        refuse(error)
    if settings is not None:
        mistakes += tuple(map(source.located, all_mistakes(settings)))
    shown = {} if settings is None else settings.model_dump(mode="json")
    told = report(shown, source, in_order(mistakes), as_json=as_json, strict=strict)
    for line in told.told:
        click.echo(printable(line), err=True)
    if told.shown:
        click.echo(told.shown)
    sys.exit(told.exit_code)
