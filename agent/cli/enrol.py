"""`tiltyard-agent enrol`: enrol this host in a deployment, first or again."""

import asyncio
import socket
import time
from pathlib import Path
from typing import TextIO

import click

from agent.cli.options import CONFIG, fail
from agent.domain.errors import DiskFullError


@click.command("enrol")
@CONFIG
@click.argument("url")
@click.option(
    "--token-file",
    type=click.File(encoding="utf-8", errors="replace"),
    default="-",
    help="File with the token of `tiltyard-controlplane agent token`; default: stdin.",
)
@click.option("--name", help="The agent's name; default: the host name.")
@click.option("--region", help="Reject a token for another region.")
@click.option("--node-pool", help="Reject a token for another node pool.")
def enrol_host(
    path: Path | None,
    url: str,
    *,
    token_file: TextIO,
    name: str | None,
    region: str | None,
    node_pool: str | None,
) -> None:
    """Enrol this host with the control plane at URL, such as https://control.example:7443.

    The key is made here and stays here. A running agent needs no restart.
    """
    from agent.cli.settings import read_config
    from agent.rpc.enrolment import NotEnrolledError, enrol
    from agent.rpc.identity import FILE
    from tiltyard.runtime.settings import EXIT_CONFIG

    config = read_config(path)
    if not config.rpc_listen:
        problem = "rpc_listen must be set in the settings, such as 0.0.0.0:7444, where the host is"
        fail(f"{problem} called. Restart a running agent, and enrol again", EXIT_CONFIG)
    named = {"name": name or socket.gethostname(), "address": config.announced()}
    named |= {"region": region or "", "nodePool": node_pool or ""}
    wanted = {key: value for key, value in named.items() if value}
    try:
        enrolled = asyncio.run(enrol(url, token_file.read(), wanted, time.time()))
    except NotEnrolledError as error:
        fail(str(error))
    try:
        enrolled.identity.save(config.state_dir / FILE)
    except DiskFullError as error:
        again = f"`tiltyard-controlplane agent token --agent {enrolled.name}`"
        fail(f"{error}; the token is used up: {again} creates another")
    click.echo(
        f"enrolled as {enrolled.name} in region {enrolled.region}, node pool"
        f" {enrolled.node_pool}; called at {config.announced()}"
    )
