"""The operator command that explains placement."""

from typing import Any

import click

from controlplane.cli.api import Api
from controlplane.cli.columns import Column, Row, cores, memory, table
from controlplane.cli.options import PAIRS, calls


def _why_not(row: Row) -> str:
    reasons = [obstacle["details"] for obstacle in row["obstacles"]]
    pull = row["pull"]
    if pull is not None:
        layers = f", {pull['layersDone']} of {pull['layers']} layers" if pull["layers"] else ""
        cause = f": {pull['cause']}" if pull["cause"] else ""
        reasons.append(f"its pull is {pull['state']}{layers}{cause}")
    if row["failure"] is not None:
        reasons.append(f"avoided, starts fail there: {row['failure']['cause']}")
    if row["inDoubt"]:
        reasons.append("did not carry out a call: it comes last until its next report")
    return "; ".join(reasons)


def _resources(amount: Row) -> str:
    gpus = [f"GPU {amount['gpu']}"] if amount["gpu"] else []
    return ", ".join([f"CPU {cores(amount['cpu'])}", f"RAM {memory(amount['ram'])}", *gpus])


HOSTS: tuple[Column, ...] = (
    "rank",
    "agent",
    ("FULL", lambda row: "" if row["fullness"] is None else f"{row['fullness']:.0%}"),
    "latency",
    ("FREE", lambda row: "" if row["free"] is None else _resources(row["free"])),
    ("WHY NOT", _why_not),
)


def _lines(content: Any) -> list[str]:
    head = (
        f"{content['account']}/{content['image']}:{content['tag']} in {content['location']} asks"
        f" for {_resources(content['reservation'])};"
        f" node pool {content['nodePool']} is {content['strategy']}"
    )
    return [head, *table(HOSTS, content["hosts"])]


@click.command()
@click.argument("image")
@click.argument("location")
@click.option("--account", default="default", show_default=True, help="Its account.")
@click.option("--version", help="The tag; default: the one that a start would use.")
@click.option(
    "--port",
    "pins",
    help="Request a host port; repeatable.",
    **PAIRS | {"metavar": "7777/udp=25000"},
)
@calls("explain placement")
def placement(
    api: Api, image: str, location: str, *, account: str, version: str | None, pins: dict[str, str]
) -> None:
    """Explain for each host why a session would be placed there now, or why not."""
    query = {"account": account, "image": image, "location": location, "version": version}
    query |= {f"ports[{container}]": host for container, host in pins.items()}
    api.print(api.call("GET", "operator", "placement", query=query), _lines)
