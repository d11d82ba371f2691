"""Timing of messages to watchers, on a fake clock."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from agent.changes.feed import PILE_LARGEST
from agent.domain.containers.engine import LogPiece
from agent.logs.cursor import Cursor
from agent.logs.pace import PART_OF_LOOP
from agent.rpc.service import HEARTBEAT_SECONDS
from controlplane.agent_rpc.wire import shapes_out
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Agent, Host, an_agent, host_report
from tests.support.agent.keeping import keeping_on
from tests.support.agent.samples import IMAGE, a_session, a_spec, an_id
from tests.support.fake_clock import FakeClock, until_idle
from tests.support.fake_engine import FakeEngine
from tests.support.tasks import running
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.runtime.clock import DUTY_CYCLE

LOCAL: Any = SimpleNamespace(invocation_metadata=tuple, auth_context=dict, peer=lambda: "unix:")


@pytest.mark.parametrize(
    ("took", "rest"),
    [
        (0.02, 0.02 * DUTY_CYCLE),
        (10.0, HEARTBEAT_SECONDS / 2),
    ],
    ids=["long", "stood-still"],
)
async def test_expensive_changes_neither_block_loop_nor_delay_heartbeats(
    agent: Agent, clock: FakeClock, took: float, rest: float
) -> None:
    took_now = 0.0

    def describe() -> pb.Host:
        clock.stall(took_now)
        return host_report(agent)

    service = agent.service(describe)
    feed = agent.runtime.feed
    async with aclosing(service.Watch(pb.WatchRequest(), LOCAL)) as messages:
        while not (await anext(messages)).HasField("snapshot_end"):
            pass
        took_now = took
        feed.host_changed()
        assert (await anext(messages)).HasField("host")
        feed.host_changed()
        news = asyncio.create_task(anext(messages), name="news")
        await clock.advance(rest - 0.01)
        assert not news.done()
        await clock.advance(0.01)
        assert news.done()
        assert (await news).HasField("host")


async def test_unread_stream_restarts_with_a_snapshot(agent: Agent) -> None:
    service = agent.service(lambda: host_report(agent))
    async with aclosing(service.Watch(pb.WatchRequest(), LOCAL)) as messages:
        while not (await anext(messages)).HasField("snapshot_end"):
            pass
        for _ in range(PILE_LARGEST + 1):
            agent.runtime.feed.session_changed(a_session())
        assert (await anext(messages)).HasField("snapshot_begin")


async def test_shapes_are_prepared_until_others_replace_them(host: Host) -> None:
    shape = a_spec().shape
    assert shape is not None
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        service = agent.service(lambda: host_report(agent))
        await service.SetShapes(shapes_out([shape]), LOCAL)
        await until_idle()
        assert len(keeping.waiting) == 1
        await service.SetShapes(shapes_out([]), LOCAL)
        await until_idle()
        assert keeping.all == []


async def test_image_of_prepared_containers_can_be_removed(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        service = agent.service(lambda: host_report(agent))
        await keeping.ordered(a_shape())
        await service.RemoveImage(pb.RemoveImageRequest(image=IMAGE), LOCAL)
        assert keeping.all == []
        assert IMAGE not in await agent.engine.images()


class AbortedError(Exception):
    """What gRPC raises in a handler whose call was aborted."""


async def test_request_out_of_bounds_is_refused_with_its_field(agent: Agent) -> None:
    aborted: list[tuple[grpc.StatusCode, str]] = []

    async def abort(code: grpc.StatusCode, text: str, **_: object) -> None:
        aborted.append((code, text))
        raise AbortedError

    context: Any = SimpleNamespace(**vars(LOCAL), abort=abort)
    service = agent.service(lambda: host_report(agent))
    with pytest.raises(AbortedError):
        await service.GetReport(pb.GetReportRequest(internal_id="x" * 1000), context)
    [(code, text)] = aborted
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "GetReportRequest.internal_id" in text


async def test_follower_of_a_flood_waits(
    agent: Agent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Cursor.take

    def take_long(cursor: Cursor, pieces: Sequence[LogPiece]) -> Sequence[LogPiece]:
        clock.stall(PART_OF_LOOP)  # so that each part fills a second
        return take(cursor, pieces)

    monkeypatch.setattr(Cursor, "take", take_long)
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(session.container, b"\n" * 30)
    service = agent.service(lambda: host_report(agent))
    request = pb.StreamLogsRequest(internal_id=session.internal_id, follow=True)
    received: list[bytes] = []

    async def follow() -> None:
        async with aclosing(service.StreamLogs(request, LOCAL)) as messages:
            async for message in messages:
                data = message.data
                received.append(data)

    async with running(follow()):
        await until_idle()
        assert len(received) == 1
        await clock.advance(10.0)
        assert 9 <= len(received) <= 11


async def snapshot_of(agent: Agent) -> list[str | None]:
    """Return the kinds of the messages of a snapshot."""
    kinds = []
    service = agent.service(lambda: host_report(agent))
    async with aclosing(service.Watch(pb.WatchRequest(), LOCAL)) as messages:
        async for message in messages:
            kinds.append(message.WhichOneof("event"))
            if message.HasField("snapshot_end"):
                break
    return kinds


async def test_images_are_reported_once_the_engine_has_listed_them(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with an_agent(tmp_path, FakeEngine(clock), clock, reconcile=False) as agent:
        assert await snapshot_of(agent) == ["snapshot_begin", "host", "snapshot_end"]
        await agent.images.refresh()
        assert await snapshot_of(agent) == ["snapshot_begin", "images", "host", "snapshot_end"]
