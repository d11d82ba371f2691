"""Warm pools in tests: set one, and wait for its standbys."""

from typing import Any

from tests.support.controlplane.system import System

POOL: dict[str, Any] = {"size": 3, "env": {"MODE": "warm"}, "labels": {"mode": "ffa"}}


async def put(system: System, place: str = "game/local", **pool: Any) -> None:
    (await system.call("PUT", f"/warm-pool/{place}", json=POOL | pool)).expect(204)


async def becomes_ready(system: System, count: int) -> None:
    await system.until(
        "/warm-pool", lambda found: sum(pool["ready"] for pool in found["warmPools"]) == count
    )


async def keep(system: System, size: int = 3, **pool: Any) -> None:
    """Set the pool and wait until all its standbys are ready."""
    await put(system, size=size, **pool)
    await becomes_ready(system, size)


def shares(system: System) -> list[int]:
    return [len(agent.standbys) for agent in system.agents]
