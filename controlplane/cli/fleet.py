"""Operator commands for regions, node pools, agents and warm pools."""

from collections.abc import Callable
from typing import Any

import click

from controlplane.cli.api import Api
from controlplane.cli.authority import short
from controlplane.cli.columns import Column, Row, cores, memory, sheet, table, time
from controlplane.cli.console import confirmed
from controlplane.cli.options import NAME, PAIRS, YES, calls, lists, removes
from controlplane.cli.placement import placement
from controlplane.cli.registries import registry
from controlplane.domain.placement.placement import Strategy


def _usage(key: str, show: Callable[[Any], str]) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        reserved = row["reserved"]
        capacity = row["capacity"]
        return "" if capacity is None else f"{show(reserved[key])} of {show(capacity[key])}"

    return shown


def _draining(row: Row) -> str:
    shown = "yes" if row["draining"] else "no"
    if row["drainDeadline"] is not None:
        shown += f", until {time(row['drainDeadline'])}"
    return f"{shown}, not acknowledged yet" if row["drainPending"] else shown


def _image_accounts(row: Row) -> str:
    return ", ".join(f"{each['account']}: {memory(each['size'])}" for each in row["imageAccounts"])


def _free_for_images(row: Row) -> str:
    return "" if row["freeForImages"] is None else memory(row["freeForImages"])


_USE: tuple[Column, ...] = (("IN SETTINGS", "declared"), "applications", "agents")
REGIONS: tuple[Column, ...] = ("name", *_USE)
NODE_POOLS: tuple[Column, ...] = ("name", "strategy", "hostNetwork", "capabilities", *_USE)
AGENTS: tuple[Column, ...] = (
    "name",
    "state",
    "region",
    "nodePool",
    "version",
    "sessions",
    ("CPU", _usage("cpu", cores)),
    ("RAM", _usage("ram", memory)),
    ("IMAGES", "imageCount"),
    ("DRAINING", _draining),
    ("CERTIFICATE UNTIL", "certificateExpires"),
    ("AUTHORITY", lambda row: short(row["authority"])),
    "latency",
    "lastReport",
)
AGENT: tuple[Column, ...] = (
    *AGENTS,
    "address",
    ("PUBLIC", "publicAddress"),
    "latencyAddresses",
    "unresponsiveAddresses",
    "engineAvailable",
    "engineVersion",
    ("RUNC", "runcVersion"),
    ("KERNEL", "kernelVersion"),
    ("GPU", _usage("gpu", str)),
    "freeSessions",
    ("IN SETTINGS", "declared"),
    "lost",
    "revoked",
    ("UNCLAIMED", "unclaimedCount"),
    "warmPools",
    "prepared",
    "images",
    ("IMAGES OF", _image_accounts),
    ("FREE FOR IMAGES", _free_for_images),
    "pulls",
    "startFailures",
)
EXPOSURE: tuple[Column, ...] = (
    "agent",
    "sessions",
    "running",
    "accounts",
    ("APPLICATIONS", "applicationCount"),
    ("WARM POOLS", "warmPoolCount"),
    ("REGISTRY LOGINS", "registryLoginCount"),
)
EXPOSED_APPLICATIONS: tuple[Column, ...] = (
    "account",
    "image",
    "sessions",
    "running",
    "first",
    "last",
)
EXPOSED_WARM_POOLS: tuple[Column, ...] = ("account", ("WARM POOL OF", "image"), "location")
EXPOSED_LOGINS: tuple[Column, ...] = (("REGISTRY", "name"), "address", "username")
DRAIN: tuple[Column, ...] = ("name", "sessions", ("DRAINING", _draining))
WARM_POOLS: tuple[Column, ...] = (
    "image",
    "location",
    "size",
    "ready",
    "enabled",
    "env",
    "args",
    "labels",
    "claimSignal",
)


@click.group()
def region() -> None:
    """Regions of hosts and sessions."""


lists(region, "regions", "operator/region", rows="regions", columns=REGIONS)
removes(region, "delete", "region", "Delete a region that nothing uses.")


@region.command("create")
@NAME
@calls("create the region")
def create_region(api: Api, name: str) -> None:
    """Create a region."""
    api.call("PUT", "operator", "region", name)


@click.group("node-pool")
def node_pool() -> None:
    """Node pools: groups of hosts with a placement strategy."""


lists(node_pool, "node pools", "operator/node-pool", rows="nodePools", columns=NODE_POOLS)
removes(node_pool, "delete", "node pool", "Delete a node pool that nothing uses.")


@node_pool.command("set")
@NAME
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in Strategy]),
    default=Strategy.PACKED.value,
    show_default=True,
    help="Fill the fullest host first, or the emptiest.",
)
@click.option(
    "--host-network",
    "hostNetwork",
    is_flag=True,
    help="Allow applications with networkMode host; by default they are rejected.",
)
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    help="Allow this capability to applications; repeatable.",
)
@calls("set the node pool")
def set_node_pool(api: Api, name: str, **body: object) -> None:
    """Create a node pool, or change its rules."""
    api.call("PUT", "operator", "node-pool", name, body=body)


@click.group()
def agent() -> None:
    """Agents and their hosts."""


lists(agent, "agents", "operator/agent", rows="agents", columns=AGENTS)
removes(
    agent,
    "remove",
    "agent",
    "Remove an agent without live sessions that the settings file does not declare.",
    question="Remove the agent {}, with the logs and files of its ended sessions?",
)


@agent.command("show")
@NAME
@calls("show the agent")
def show_agent(api: Api, name: str) -> None:
    """Show one agent and the images of its host."""
    api.print(api.call("GET", "operator", "agent", name), lambda row: sheet(AGENT, row))


@agent.command("drain")
@NAME
@click.option(
    "--deadline",
    metavar="1h30m",
    help="Stop remaining sessions after this time; by default they end by themselves.",
)
@calls("drain the host")
def drain(api: Api, name: str, deadline: str | None) -> None:
    """Drain a host; an unreachable one gets the order once it is reachable."""
    content = api.call("POST", "operator", "agent", name, "drain", body={"deadline": deadline})
    api.print(content, lambda row: sheet(DRAIN, row))


@agent.command("undrain")
@NAME
@calls("undrain the host")
def undrain(api: Api, name: str) -> None:
    """End the drain of a host, even if it was drained locally."""
    content = api.call("DELETE", "operator", "agent", name, "drain")
    api.print(content, lambda row: sheet(DRAIN, row))


@agent.command("revoke")
@NAME
@YES
@calls("revoke the agent")
def revoke_agent(api: Api, name: str, *, yes: bool) -> None:
    """Revoke an agent whose host is compromised; its sessions are lost.

    Prints what the host had access to.
    """
    confirmed(f"Revoke the agent {name} permanently and end all of its sessions?", yes=yes)
    api.print(api.call("POST", "operator", "agent", name, "revoke"), _exposure)


@agent.command("exposure")
@NAME
@calls("show what the host had access to")
def show_exposure(api: Api, name: str) -> None:
    """Show what an agent's host has had access to, also after it was revoked."""
    api.print(api.call("GET", "operator", "agent", name, "exposure"), _exposure)


def _exposure(content: Row) -> list[str]:
    lists = (
        (EXPOSED_APPLICATIONS, content["applications"]),
        (EXPOSED_WARM_POOLS, content["warmPools"]),
        (EXPOSED_LOGINS, content["registryLogins"]),
    )
    lines = sheet(EXPOSURE, content)
    for columns, rows in lists:
        lines += ["", *table(columns, rows)]
    return lines


@agent.command("token")
@click.option("--region", help="The region of a new host.")
@click.option("--node-pool", help="Its node pool; default: `default`.")
@click.option("--agent", "again", help="Instead: an agent that enrols again.")
@calls("create the token")
def create_token(api: Api, region: str | None, node_pool: str | None, again: str | None) -> None:
    """Create and print a token that enrols one host, within 15 minutes."""
    if (region is None) == (again is None) or (again is not None and node_pool is not None):
        text = "give --region, with or without --node-pool, or --agent alone"
        raise click.UsageError(text, click.get_current_context())
    if again is not None:
        content = api.call("POST", "operator", "agent", again, "token")
    else:
        body = {"region": region, "nodePool": node_pool}
        content = api.call("POST", "operator", "enrolment-token", body=body)
    api.print(content, lambda content: [str(content["token"])])


@click.group("warm-pool")
def warm_pool() -> None:
    """Warm pools of the token's account."""


lists(warm_pool, "warm pools", "warm-pool", rows="warmPools", columns=WARM_POOLS)


@warm_pool.command("set")
@click.argument("image")
@click.argument("location")
@click.option("--size", type=click.IntRange(0, 1000), required=True, help="Number of standbys.")
@click.option("--env", help="A variable; repeatable.", **PAIRS)
@click.option("--arg", "args", multiple=True, help="An argument; repeatable.")
@click.option("--label", "labels", help="A label; repeatable.", **PAIRS)
@click.option("--claim-signal", "claimSignal", metavar="SIGNAL", help="Signal at a claim.")
@click.option("--disabled", is_flag=True, help="Keep the settings, but no standbys.")
@calls("set the warm pool")
def set_warm_pool(api: Api, image: str, location: str, *, disabled: bool, **pool: object) -> None:
    """Create or replace the warm pool of an application in a region."""
    api.call("PUT", "warm-pool", image, location, body={"enabled": not disabled, **pool})


@warm_pool.command("delete")
@click.argument("image")
@click.argument("location")
@calls("delete the warm pool")
def delete_warm_pool(api: Api, image: str, location: str) -> None:
    """Delete the warm pool of an application in a region."""
    api.call("DELETE", "warm-pool", image, location)


COMMANDS = (region, node_pool, registry, agent, warm_pool, placement)
