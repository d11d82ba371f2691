"""Sample warm pools for tests of the agent."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

from agent.domain.containers.engine import container_name
from agent.domain.kept.pools import WarmPool
from agent.domain.sessions.session import Session
from agent.sessions.life import ClaimRequest
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import a_spec
from tests.support.agent.served import WholeAgent
from tests.support.fake_clock import until_idle
from tests.support.tasks import running
from tiltyard.contract import Identity

POOL = "aaaaaaaa-0000-4000-8000-000000000000"
OTHER = "bbbbbbbb-0000-4000-8000-000000000000"


def a_pool(size: int, *, revision: int = 1, pool: str = POOL, **changes: Any) -> WarmPool:
    """An order for a pool of small sessions; `changes` of the order or its spec."""
    fields = {field.name for field in dataclasses.fields(WarmPool)}
    own = {name: changes.pop(name) for name in fields & changes.keys()}
    return WarmPool(pool, revision, size, a_spec(**changes) if size else None, **own)


def a_claim(session_id: str = "m1", **changes: Any) -> ClaimRequest:
    fixed = ("game", "v1", "local", {"mode": "duel"}, "x-2")
    identity = Identity("acme", session_id, *fixed, ticket="ee")
    return dataclasses.replace(ClaimRequest(identity, None, '{"map":"ü"}'), **changes)


@contextlib.asynccontextmanager
async def kept_full(agent: Agent, order: WarmPool | None = None) -> AsyncIterator[None]:
    """Keep the pools of the agent full meanwhile, beginning with an order if given."""
    async with running(agent.warm_pools.run()):
        await until_idle()
        if order is not None:
            await ordered(agent, order)
        yield


async def ordered(agent: Agent, order: WarmPool) -> None:
    """Apply an order, and wait until the agent is idle."""
    await agent.warm_pools.set(order)
    await until_idle()


def standbys(agent: Agent | WholeAgent, pool: str = POOL) -> list[Session]:
    """The live standbys of a pool in order of creation."""
    return [
        each
        for each in agent.sessions.all()
        if each.is_standby and not each.state.ended and each.standby and each.standby.pool == pool
    ]


def ready(agent: Agent | WholeAgent, pool: str = POOL) -> list[Session]:
    return [each for each in standbys(agent, pool) if each.ready_time is not None]


def revisions(agent: Agent) -> list[int]:
    """The revisions of the specs of ready standbys."""
    return sorted(each.standby.revision for each in ready(agent) if each.standby)


def session_json(agent: Agent, session: Session) -> dict[str, Any]:
    """The content of session.json."""
    path = agent.records.public_dir(session) / "session.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def crash(agent: Agent, session: Session, code: int = 3) -> None:
    """End the process of a standby."""
    agent.engine.end(container_name(session.internal_id), code)
