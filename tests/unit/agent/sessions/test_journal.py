"""The agent's log: request context and volume."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from agent.sessions import life
from tests.support.agent.hosts import Host
from tests.support.agent.samples import a_spec, an_id
from tests.support.tasks import running
from tiltyard.contract import EndReason
from tiltyard.runtime.logging.events import bind
from tiltyard.runtime.logging.output import Limit


async def test_missing_engine_floods_no_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Also while sessions end."""
    limit = Limit(monotonic=host.clock.monotonic)
    passed: list[str] = []
    keep = logging.Handler()
    keep.addFilter(limit)
    keep.emit = lambda record: passed.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(keep)
    try:
        async with host() as agent, running(agent.reconciler.run()):
            sessions = [await agent.sessions.start(an_id(), a_spec()) for _ in range(3)]
            host.engine.unavailable = True
            for session in sessions:
                agent.sessions.life(session.internal_id).ask_stop(EndReason.STOPPED)
            await host.clock.advance(300)
    finally:
        logging.getLogger().removeHandler(keep)
    assert len(caplog.records) > 45, "there is nothing to keep quiet"
    assert len(passed) < 35, Counter(each.split(" session=")[0] for each in passed)


async def test_only_a_start_has_its_request(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hostile = a_spec(identity=replace(a_spec().identity, session_id="a\nb"))

    async def call() -> str:
        bind(request="r", agent="other")
        return (await agent.sessions.start(an_id(), hostile)).internal_id

    async with host() as agent:
        internal_id = await asyncio.create_task(call(), name="call")
        await agent.sessions.stop(internal_id, EndReason.STOPPED)
    events: list[Any] = [each.msg for each in caplog.records if each.name == life.__name__]
    started, ended = events
    assert started["event"] == "session started"
    assert (started["session"], started["request"], started["id"]) == (internal_id, "r", "a\nb")
    assert "agent" not in started
    assert (ended["event"], ended["session"]) == ("session ended", internal_id)
    assert (ended["reason"], ended.get("request")) == ("stopped", None)
