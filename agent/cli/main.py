"""`tiltyard-agent`: the daemon, its settings, and the commands of other modules."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click

from agent.cli import debug as debug_cli
from agent.cli.doctor import doctor
from agent.cli.drain import drain, undrain
from agent.cli.firewall import firewall
from agent.cli.options import CONFIG, EXIT_CONFIG, fail, read_settings
from agent.clock import SystemClock
from agent.daemon import Daemon
from agent.docker.engine import DockerEngine
from agent.doctor.exposure import exposure


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltyard")
def main() -> None:
    """The Tiltyard agent of one host, and commands to look into it."""


@main.command()
@CONFIG
def serve(path: Path | None) -> None:
    """Run the agent until SIGTERM or SIGINT; its containers run on."""
    config = read_settings(path)
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if cause := exposure(config.docker_socket):
        fail(f"it does not start: {cause}", EXIT_CONFIG)
    try:
        asyncio.run(_serve(Daemon(config, DockerEngine(str(config.docker_socket)), SystemClock())))
    except RuntimeError as error:
        fail(str(error))


async def _serve(daemon: Daemon) -> None:
    work = asyncio.create_task(daemon.run(), name="daemon")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("stopped; containers run on")


@main.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@CONFIG
def check(path: Path | None) -> None:
    """Say what is wrong with the settings, or show them."""
    click.echo(read_settings(path).model_dump_json(indent=2))


for _command in (*debug_cli.COMMANDS, doctor, drain, undrain, firewall):
    main.add_command(_command)
