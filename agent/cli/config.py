"""`tiltyard-agent config`: check or show the settings."""

from pathlib import Path

import click

from agent.cli.settings_options import CONFIG, read_settings
from tiltyard.runtime.settings import show


@click.group()
def config() -> None:
    """Check the settings."""


@config.command()
@CONFIG
def check(path: Path | None) -> None:
    """Report all mistakes in the settings and the policy, or show the settings."""
    show(read_settings(path))
