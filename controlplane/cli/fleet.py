"""Operator commands for regions, node pools, agents and warm pools.

Each is a call of the API.
"""

from collections.abc import Callable
from typing import Any

import click

from controlplane.cli.authority import SHORT
from controlplane.cli.columns import (
    Column,
    Row,
    as_json,
    cores,
    field,
    memory,
    of,
    sheet,
    short_span,
    time,
    words,
    yes,
)
from controlplane.cli.options import YES, Api, calls, confirmed
from controlplane.cli.placement import placement
from controlplane.cli.registries import registry
from controlplane.domain.placement import Strategy

_NAME = click.argument("name")


def _taken(key: str, shown: Callable[[Any], str]) -> Column:
    """Show reserved and allocatable resources of a host."""

    def column(row: Row) -> str:
        reserved, capacity = row["reserved"], row["capacity"]
        return "" if capacity is None else of(shown(reserved[key]), shown(capacity[key]))

    return column


def _pulls(pulls: list[Row]) -> str:
    """Show the progress of each pull, and its last error."""
    shown = []
    for pull in pulls:
        parts = [f"{pull['image']} {pull['state']}"]
        if pull["layers"]:
            received = pull["receivedBytes"] / 2**20
            parts.append(f"{pull['layersDone']} of {pull['layers']} layers, {received:.1f} MiB")
        if pull["failures"]:
            parts.append(f"failed {pull['failures']} times, last {time(pull['failed'])}")
            parts.append(pull["cause"])
        shown.append(": ".join(parts))
    return words(shown)


def _failures(failures: list[Row]) -> str:
    """Show which applications' starts fail on a host, and why."""
    return words(
        [
            f"{each['account']}/{each['image']} failed {each['failures']} times, last"
            f" {time(each['failed'])}: {each['cause']}"
            for each in failures
        ]
    )


def _draining(row: Row) -> str:
    """Show whether a host is drained, until when, and whether it has acknowledged that."""
    shown = yes(row["draining"])
    if row["drainDeadline"] is not None:
        shown += f", until {time(row['drainDeadline'])}"
    return f"{shown}, not acknowledged yet" if row["drainPending"] else shown


def _drained(row: Row) -> list[str]:
    """Describe the result of a drain."""
    left, deadline = row["sessions"], row["drainDeadline"]
    begun = f"{row['name']} takes no new sessions"
    if left == 0:
        return [f"{begun}, and has none.", *_pending(row)]
    end = "when it ends" if deadline is None else f"by {time(deadline)}"
    count = "" if left is None else f": {left} session{'' if left == 1 else 's'}"
    return [f"{begun}; what it has ends {end}{count}.", *_pending(row)]


def _undrained(row: Row) -> list[str]:
    """Describe the result of an undrain."""
    return [f"{row['name']} takes new sessions again.", *_pending(row)]


def _pending(row: Row) -> list[str]:
    text = "It is unreachable now, and gets the order once it is reachable."
    return [text] if row["drainPending"] else []


def _warm_pools(pools: list[Row]) -> str:
    """Show the number of standbys of each pool on a host."""
    return words(
        [
            f"{pool['account']}/{pool['image']} {pool['ready']} of {pool['size']} ready"
            if pool["image"]
            else f"{pool['id']} is gone, {pool['standbys']} left"
            for pool in pools
        ]
    )


_USE: dict[str, Column] = {
    "IN SETTINGS": field("declared", yes),
    "APPLICATIONS": field("applications"),
}
REGIONS: dict[str, Column] = {"NAME": field("name"), **_USE, "AGENTS": field("agents")}
NODE_POOLS: dict[str, Column] = {
    "NAME": field("name"),
    "STRATEGY": field("strategy"),
    "HOST NETWORK": field("hostNetwork", yes),
    **_USE,
    "AGENTS": field("agents"),
}
AGENTS: dict[str, Column] = {
    "NAME": field("name"),
    "STATE": field("state"),
    "REGION": field("region"),
    "NODE POOL": field("nodePool"),
    "VERSION": field("version"),
    "SESSIONS": field("sessions"),
    "CPU": _taken("cpu", cores),
    "RAM": _taken("ram", memory),
    "IMAGES": field("imageCount"),
    "DRAINING": _draining,
    "CERTIFICATE UNTIL": field("certificateExpires", time),
    "AUTHORITY": field("authority", lambda text: text[:SHORT]),
    "LATENCY": field("latency", short_span),
    "HEARD": field("heard", time),
}
AGENT: dict[str, Column] = {
    **AGENTS,
    "ADDRESS": field("address"),
    "PUBLIC": field("publicAddress"),
    "LATENCY ADDRESSES": field("latencyAddresses", words),
    "SILENT ADDRESSES": field("silentAddresses", words),
    "ENGINE": field("engineAvailable", lambda up: "available" if up else "unavailable"),
    "ENGINE VERSION": field("engineVersion"),
    "RUNC": field("runcVersion"),
    "KERNEL": field("kernelVersion"),
    "GPU": _taken("gpu", str),
    "FREE SESSIONS": field("freeSessions"),
    "IN SETTINGS": field("declared", yes),
    "LOST": field("lost", time),
    "REVOKED": field("revoked", time),
    "UNCLAIMED": field("unclaimedCount"),
    "WARM POOLS": field("warmPools", _warm_pools),
    "IMAGES": field("images", words),
    "PULLS": field("pulls", _pulls),
    "FAILED STARTS": field("startFailures", _failures),
}
WARM_POOLS: dict[str, Column] = {
    "IMAGE": field("image"),
    "LOCATION": field("location"),
    "SIZE": field("size"),
    "READY": field("ready"),
    "ENABLED": field("enabled", yes),
    "ENV": field("env", as_json),
    "ARGS": field("args", as_json),
    "LABELS": field("labels", as_json),
    "SIGNAL": field("claimSignal"),
}


@click.group()
def region() -> None:
    """Regions of hosts and sessions."""


@region.command("list")
@calls("list regions")
def list_regions(api: Api) -> None:
    """List the regions."""
    api.print_table(api.get("operator", "region"), "regions", REGIONS)


@region.command("create")
@_NAME
@calls("create the region")
def create_region(api: Api, name: str) -> None:
    """Create a region."""
    api.put("operator", "region", name)


@region.command("delete")
@_NAME
@calls("delete the region")
def delete_region(api: Api, name: str) -> None:
    """Delete a region that nothing uses."""
    api.delete("operator", "region", name)


@click.group("node-pool")
def node_pool() -> None:
    """Node pools: groups of hosts with a placement strategy."""


@node_pool.command("list")
@calls("list node pools")
def list_node_pools(api: Api) -> None:
    """List the node pools."""
    api.print_table(api.get("operator", "node-pool"), "nodePools", NODE_POOLS)


@node_pool.command("set")
@_NAME
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in Strategy]),
    default=Strategy.PACKED.value,
    show_default=True,
    help="Fill the fullest host first, or the emptiest.",
)
@click.option(
    "--host-network",
    is_flag=True,
    help="Allow applications with networkMode host; by default they are rejected.",
)
@calls("set the node pool")
def set_node_pool(api: Api, name: str, strategy: str, *, host_network: bool) -> None:
    """Create a node pool, or change its rules."""
    body = {"strategy": strategy, "hostNetwork": host_network}
    api.put("operator", "node-pool", name, body=body)


@node_pool.command("delete")
@_NAME
@calls("delete the node pool")
def delete_node_pool(api: Api, name: str) -> None:
    """Delete a node pool that nothing uses."""
    api.delete("operator", "node-pool", name)


@click.group()
def agent() -> None:
    """Agents and their hosts."""


@agent.command("list")
@calls("list agents")
def list_agents(api: Api) -> None:
    """List the agents with the reserved resources of their hosts."""
    api.print_table(api.get("operator", "agent"), "agents", AGENTS)


@agent.command("show")
@_NAME
@calls("show the agent")
def show_agent(api: Api, name: str) -> None:
    """Show one agent and the images of its host."""
    api.print(api.get("operator", "agent", name), lambda row: sheet(AGENT, row))


@agent.command("drain")
@_NAME
@click.option(
    "--deadline",
    metavar="1h30m",
    help="Stop remaining sessions after this time; by default they end by themselves.",
)
@calls("drain the host")
def drain(api: Api, name: str, deadline: str | None) -> None:
    """Drain a host; an unreachable one gets the order once it is reachable."""
    reply = api.post("operator", "agent", name, "drain", body={"deadline": deadline})
    api.print(reply, _drained)


@agent.command("undrain")
@_NAME
@calls("undrain the host")
def undrain(api: Api, name: str) -> None:
    """End the drain of a host, even if it was drained locally."""
    api.print(api.delete("operator", "agent", name, "drain"), _undrained)


@agent.command("remove")
@_NAME
@YES
@calls("remove the agent")
def remove_agent(api: Api, name: str, *, yes: bool) -> None:
    """Remove an agent without live sessions that the settings file does not declare."""
    confirmed(f"Remove the agent {name}, with the logs and files of its ended sessions?", yes=yes)
    api.delete("operator", "agent", name)


@agent.command("revoke")
@_NAME
@YES
@calls("revoke the agent")
def revoke_agent(api: Api, name: str, *, yes: bool) -> None:
    """Revoke an agent whose host is compromised; its sessions are lost."""
    confirmed(f"Revoke the agent {name} for ever, and end all of its sessions?", yes=yes)
    api.post("operator", "agent", name, "revoke", body=None)


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
        reply = api.post("operator", "agent", again, "token", body=None)
    else:
        body = {"region": region, "nodePool": node_pool}
        reply = api.post("operator", "enrolment-token", body=body)
    api.print(reply, lambda content: [str(content["token"])])


@click.group("warm-pool")
def warm_pool() -> None:
    """Warm pools of the token's account."""


@warm_pool.command("list")
@calls("list warm pools")
def list_warm_pools(api: Api) -> None:
    """List the account's warm pools."""
    api.print_table(api.get("warm-pool"), "warmPools", WARM_POOLS)


def _pairs(_: object, __: object, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{text!r} has not the form KEY=VALUE")
        pairs[key] = value
    return pairs


_PAIRS: dict[str, Any] = {"multiple": True, "callback": _pairs, "metavar": "KEY=VALUE"}


@warm_pool.command("set")
@click.argument("image")
@click.argument("location")
@click.option("--size", type=click.IntRange(0, 1000), required=True, help="Number of standbys.")
@click.option("--env", help="A variable; repeatable.", **_PAIRS)
@click.option("--arg", "args", multiple=True, help="An argument; repeatable.")
@click.option("--label", "labels", help="A label; repeatable.", **_PAIRS)
@click.option("--claim-signal", "claimSignal", metavar="SIGNAL", help="Signal at a claim.")
@click.option("--disabled", is_flag=True, help="Keep the settings, but no standbys.")
@calls("set the warm pool")
def set_warm_pool(api: Api, image: str, location: str, *, disabled: bool, **pool: object) -> None:
    """Create or replace the warm pool of an application in a region."""
    api.put("warm-pool", image, location, body={"enabled": not disabled, **pool})


@warm_pool.command("delete")
@click.argument("image")
@click.argument("location")
@calls("delete the warm pool")
def delete_warm_pool(api: Api, image: str, location: str) -> None:
    """Delete the warm pool of an application in a region."""
    api.delete("warm-pool", image, location)


COMMANDS = (region, node_pool, registry, agent, warm_pool, placement)
