"""The feed of a host: what is owed to a watcher that does not read is bounded."""

import itertools
from pathlib import Path

import grpc

from agent.changes.feed import PILE_LARGEST, Feed
from agent.domain.session import Session
from agent.kernel.clock import SystemHostClock
from tests.support.agent.samples import a_session
from tests.support.agent.served import served
from tests.support.fakes import FakeEngine
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

CLOCK = SystemHostClock()


def _changed(feed: Feed) -> Session:
    return a_session().with_changes(sequence=feed.stamp())


async def test_of_one_session_the_newest_change_is_owed() -> None:
    feed, session = Feed(), a_session()
    with feed.subscribe() as subscription:
        for _ in range(3):
            session = session.with_changes(sequence=feed.stamp())
            feed.tell_session(session)
        changes = await subscription.take(0)
        assert (changes.sessions, changes.host, changes.snapshot) == ((session,), True, False)
        assert await subscription.take(0) == type(changes)()


async def test_who_does_not_read_is_owed_a_snapshot_and_no_pile() -> None:
    feed = Feed()
    with feed.subscribe() as slow:
        for _ in range(3 * PILE_LARGEST):
            feed.tell_session(_changed(feed))
            assert len(slow._sessions) <= PILE_LARGEST
        changes = await slow.take(0)
        assert changes.snapshot
        assert changes.sessions == ()
        last = _changed(feed)
        feed.tell_session(last)
        assert (await slow.take(0)).sessions == (last,)


async def test_a_stream_that_was_not_read_restarts(tmp_path: Path, engine: FakeEngine) -> None:
    """Over a real connection, whose buffers are full before the pile is."""
    async with served(tmp_path, engine, CLOCK) as agent:
        feed = agent.daemon._feed
        async with grpc.aio.insecure_channel(f"unix:{agent.config.socket}") as channel:
            stream = agent_pb2_grpc.AgentServiceStub(channel).Watch(agent_pb2.WatchRequest())
            async for message in stream:
                if message.HasField("snapshot_end"):
                    break
            [subscription] = feed._subscriptions
            labels = {"k": "v" * 10_000}
            for number in itertools.count():
                session = _changed(feed)
                identity = session.spec.identity
                identity.labels.update(labels)  # type: ignore[attr-defined]
                feed.tell_session(session)
                if number % 50 == 0:
                    await stream.wait_for_connection()
                if subscription._snapshot:
                    break
            assert subscription._sessions == {}
            async for message in stream:
                if message.HasField("snapshot_begin"):
                    break
            stream.cancel()
