"""`tiltyard-agent`: the daemon, its settings, and the commands of other modules."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import click

from agent.cli import debug as debug_cli
from agent.cli.doctor import doctor
from agent.cli.drain import drain, undrain
from agent.cli.enrol import enrol_host
from agent.cli.firewall import firewall
from agent.cli.options import CONFIG, EXIT_CONFIG, fail, read_settings
from agent.clock import SystemClock
from agent.config import load_supervision
from agent.daemon import Daemon
from agent.docker.engine import DockerEngine
from agent.doctor.exposure import exposure

STOP_SECONDS = 55.0
"""After which a stop is cut off: its stages have 45 s, and systemd would kill after 90 s."""
LEAVE_SECONDS = 1.0
"""How long threads that have nothing to do any more may take to see it."""


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
        engine = DockerEngine(str(config.docker_socket))
        daemon = Daemon(config, engine, SystemClock(), supervision=load_supervision())
        asyncio.run(_serve(daemon))
    except RuntimeError as error:
        fail(str(error))
    _leave()


async def _serve(daemon: Daemon) -> None:
    work = asyncio.create_task(daemon.run(), name="daemon")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, work)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("stopped; containers run on")


def _stop(work: asyncio.Task[None]) -> None:
    """Stop, and end the process with a word on every thread when that takes too long."""
    faulthandler.dump_traceback_later(STOP_SECONDS, exit=True)
    work.cancel()


def _leave() -> None:
    """End the process without waiting for threads that an engine or a disk holds up.

    Whatever they were to do is done or unknown, as after a kill, and found out at the next start.
    """
    here = threading.current_thread()
    others = [each for each in threading.enumerate() if not (each.daemon or each is here)]
    for thread in others:
        thread.join(LEAVE_SECONDS / len(others))
    if stuck := [thread.name for thread in others if thread.is_alive()]:
        logging.getLogger(__name__).warning("not waiting for %s", ", ".join(stuck))
        logging.shutdown()
        os._exit(0)


@main.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@CONFIG
def check(path: Path | None) -> None:
    """Say what is wrong with the settings, or show them."""
    click.echo(read_settings(path).model_dump_json(indent=2))


for _command in (*debug_cli.COMMANDS, doctor, drain, undrain, enrol_host, firewall):
    main.add_command(_command)
