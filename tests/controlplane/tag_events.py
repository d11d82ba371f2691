"""Events of tags that tests wait for, and agents whose pulls fail."""

import asyncio
import json
from collections import Counter
from typing import Any

from tests.support.controlplane.agent_scripts import Script, refuse
from tests.support.controlplane.system import System, eventually_equals


async def counts(system: System) -> dict[str, int]:
    """How many events of each kind of tags there are."""
    return dict(Counter(kind for (kind,) in await system.events("tag.%", "kind")))


async def become(system: System, **expected: int) -> None:
    """Wait until there is this number of events of each kind of tags."""
    kinds = {f"tag.{name}": count for name, count in expected.items()}
    await eventually_equals(lambda: counts(system), kinds)


async def data_of(system: System, kind: str) -> list[dict[str, Any]]:
    return [json.loads(data) for (data,) in await system.events(kind, "data")]


async def attempts(system: System, agent: str, count: int) -> None:
    """Wait until an agent has refused this number of further pulls."""

    def failed(shown: Any) -> int:
        return sum(pull["failures"] for pull in shown["pulls"])

    path = f"/operator/agent/{agent}"
    before = failed(await system.read(path))
    await system.until(path, lambda shown: failed(shown) >= before + count)


def refusing_after(go: asyncio.Event, reason: str, repository: str = "") -> Script:
    """Refuse pulls, by default of all repositories, after an event."""

    async def script(request: Any, context: Any) -> None:
        await go.wait()
        if repository in request.image:
            await refuse(context, reason)

    return script


async def make_other(system: System) -> None:
    """Make the application `other`; its events are written after those of earlier changes."""
    await system.make_application(tag=None, name="other", repository="studio/other")
