"""When a watcher of the agent hears of changes, on a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.host import HostReport
from agent.identity import HostIdentity
from agent.rpc import HEARTBEAT_SECONDS, REST, AgentService, Services
from tests.agent.hosts import Agent
from tests.agent.scraped import host_report
from tests.fakes import FakeClock
from tiltyard.agent.v1 import agent_pb2 as pb

NOBODY: Any = SimpleNamespace(invocation_metadata=lambda: ())


def service_of(
    agent: Agent, folder: Path, describe_host: Callable[[], HostReport]
) -> AgentService:
    """The agent's service, without artifacts."""
    nothing: Any = None
    return AgentService(
        Services(
            sessions=agent.sessions,
            warm_pools=agent.warm_pools,
            images=agent.images,
            artifacts=nothing,
            engine=agent.engine,
            records=agent.records,
            feed=agent.host.feed,
            clock=agent.clock,
            describe_host=describe_host,
            identity=HostIdentity(folder, agent.records.run, agent.clock.time),
            metrics=agent.host.metrics,
        )
    )


@pytest.mark.parametrize(
    ("took", "rest"),
    [(0.02, 0.02 * REST), (10.0, HEARTBEAT_SECONDS / 2)],
    ids=["long", "stood-still"],
)
async def test_news_that_take_long_leave_the_loop_to_others_but_no_watcher_in_silence(
    agent: Agent, clock: FakeClock, tmp_path: Path, took: float, rest: float
) -> None:
    took_now = 0.0

    def describe() -> HostReport:
        clock._monotonic += took_now
        return host_report(agent)

    service = service_of(agent, tmp_path, describe)
    feed = agent.host.feed
    async with aclosing(service.Watch(pb.WatchRequest(), NOBODY)) as messages:
        while not (await anext(messages)).HasField("snapshot_end"):
            pass
        took_now = took
        feed.tell_host()
        assert (await anext(messages)).HasField("host")
        feed.tell_host()
        news = asyncio.create_task(anext(messages), name="news")
        await clock.advance(rest - 0.01)
        assert not news.done()
        await clock.advance(0.01)
        assert news.done()
        assert (await news).HasField("host")
