"""`tiltyard-agent`: the daemon, and debug commands that speak to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from agent.client import AgentClient, ClientError
from agent.clock import SystemClock
from agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, load_config
from agent.daemon import Daemon
from agent.docker_engine import DockerEngine
from agent.failpoints import failpoint
from agent.policy import PolicyError, load_policy

EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: starting again without an edit is no use."""

_CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Settings file; {DEFAULT_CONFIG} when it exists, else the defaults.",
)
_SOCKET = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    envvar="TILTYARD_AGENT_SOCKET",
    default=AgentConfig.model_fields["socket"].default,
    show_default=True,
    help="The agent's unix socket.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tiltyard")
def main() -> None:
    """The Tiltyard agent of one host, and commands to look into it."""


def _settings(path: Path | None) -> AgentConfig:
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    try:
        config = load_config(path)
        failpoint(config.failpoint)
        load_policy(config.policy)
    except (ConfigError, PolicyError, ValueError) as error:
        click.echo(f"tiltyard-agent: {error}", err=True)
        sys.exit(EXIT_CONFIG)
    return config


@main.command()
@_CONFIG
def serve(path: Path | None) -> None:
    """Run the agent until SIGTERM or SIGINT; its containers run on."""
    config = _settings(path)
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        asyncio.run(_serve(Daemon(config, DockerEngine(str(config.docker_socket)), SystemClock())))
    except RuntimeError as error:
        click.echo(f"tiltyard-agent: {error}", err=True)
        sys.exit(1)


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
@_CONFIG
def check(path: Path | None) -> None:
    """Say what is wrong with the settings, or show them."""
    click.echo(_settings(path).model_dump_json(indent=2))


@main.command()
@_SOCKET
def status(socket: Path) -> None:
    """Show the host: capacity, ports, images, engine, warnings."""
    with _client(socket) as agent:
        _show(agent.host())


@main.command()
@_SOCKET
@click.option("--all", "everything", is_flag=True, help="Ended sessions too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sessions(socket: Path, *, everything: bool, as_json: bool) -> None:
    """List sessions."""
    with _client(socket) as agent:
        for session in agent.sessions(live_only=not everything):
            click.echo(json.dumps(session) if as_json else _row(session))


@main.command()
@_SOCKET
@click.argument("internal_id")
def inspect(socket: Path, internal_id: str) -> None:
    """Show all that is known of one session."""
    with _client(socket) as agent:
        _show(agent.session(internal_id))


@main.command()
@_SOCKET
@click.option("-f", "--follow", is_flag=True, help="Stay until the session has ended.")
@click.argument("internal_id")
def logs(socket: Path, internal_id: str, *, follow: bool) -> None:
    """Print a session's output."""
    with _client(socket) as agent:
        for chunk in agent.logs(internal_id, follow=follow):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


@main.command()
@_SOCKET
@click.argument("internal_id")
@click.argument("path")
def artifact(socket: Path, internal_id: str, path: str) -> None:
    """Write a file or folder of an ended session to standard output, as .tar.gz."""
    with _client(socket) as agent:
        for chunk in agent.artifact(internal_id, path):
            sys.stdout.buffer.write(chunk)


@main.command()
@_SOCKET
@click.argument("internal_id")
def stop(socket: Path, internal_id: str) -> None:
    """Stop a session and wait for its end."""
    with _client(socket) as agent:
        _show(agent.stop(internal_id))


@main.command()
@_SOCKET
@click.argument("image")
def pull(socket: Path, image: str) -> None:
    """Pull an image by digest."""
    with _client(socket) as agent:
        for progress in agent.pull(image):
            click.echo(json.dumps(progress))


@contextlib.contextmanager
def _client(socket: Path) -> Iterator[AgentClient]:
    """An agent to ask; what it refuses ends the command with one line."""
    try:
        with AgentClient(socket) as agent:
            yield agent
    except ClientError as refusal:
        click.echo(f"tiltyard-agent: {refusal}", err=True)
        sys.exit(1)


def _show(message: dict[str, Any]) -> None:
    click.echo(json.dumps(message, indent=2))


def _row(session: dict[str, Any]) -> str:
    ports = ",".join(
        f"{port['host_port']}->{port['container_port']}/{port['protocol'][9:].lower()}"
        for port in session["ports"]
    )
    identity = session["identity"]
    return "\t".join(
        (
            session["internal_id"],
            session["state"].removeprefix("STATE_").lower(),
            identity["application"],
            identity["tag"],
            ports or "-",
            # The caller's id comes last and escaped: it may hold anything.
            json.dumps(identity["session_id"]),
        )
    )
