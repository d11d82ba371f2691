"""`tiltyard-agent`: its commands."""

import gc
from pathlib import Path

import click

from agent.cli import debug
from agent.cli.doctor import doctor
from agent.cli.drain import drain, undrain
from agent.cli.enrol import enrol_host
from agent.cli.firewall import firewall
from agent.cli.options import CONFIG


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltyard")
def main() -> None:
    """The Tiltyard agent of a host, and commands to inspect it."""


@click.command("serve")
@CONFIG
def serve_host(path: Path | None) -> None:
    """Run the agent until SIGTERM or SIGINT; containers keep running. SIGHUP is ignored."""
    gc.disable()  # imports make no garbage
    from agent.cli.serve import serve
    from agent.cli.settings import read_settings

    gc.enable()
    serve(read_settings(path))


@click.group()
def config() -> None:
    """Check the settings."""


@config.command()
@CONFIG
def check(path: Path | None) -> None:
    """Report all mistakes in the settings and the policy, or show the settings."""
    from agent.cli.settings import read_settings
    from tiltyard.runtime.settings import show

    show(read_settings(path))


COMMANDS = (*debug.COMMANDS, drain, undrain, serve_host, config, doctor, enrol_host, firewall)
for _command in COMMANDS:
    main.add_command(_command)
