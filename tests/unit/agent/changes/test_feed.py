from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from agent.changes.feed import PILE_LARGEST, Changes, Feed
from agent.domain.session import Session
from tests.support.agent.hosts import Agent, host_report
from tests.support.agent.samples import a_session
from tiltyard.agent.v1 import agent_pb2 as pb


def _change(feed: Feed, count: int) -> list[Session]:
    """Report changes of this number of sessions."""
    changed = [a_session().with_changes(sequence=feed.stamp()) for _ in range(count)]
    for session in changed:
        feed.session_changed(session)
    return changed


async def test_newest_change_of_a_session_is_kept() -> None:
    feed, session = Feed(), a_session()
    with feed.subscribe() as subscription:
        for _ in range(3):
            session = session.with_changes(sequence=feed.stamp())
            feed.session_changed(session)
        assert await subscription.take(0) == Changes((session,), host=True)
        assert await subscription.take(0) == Changes()


async def test_slow_watcher_gets_a_snapshot_instead_of_many_changes() -> None:
    feed = Feed()
    with feed.subscribe() as slow:
        full = _change(feed, PILE_LARGEST)
        assert list((await slow.take(0)).sessions) == full
        _change(feed, 3 * PILE_LARGEST)
        assert await slow.take(0) == Changes(host=True, snapshot=True)
        [last] = _change(feed, 1)
        assert (await slow.take(0)).sessions == (last,)


async def test_unread_stream_restarts_with_a_snapshot(agent: Agent) -> None:
    service = agent.service(lambda: host_report(agent))
    context: Any = SimpleNamespace(
        invocation_metadata=lambda: (), auth_context=dict, peer=lambda: "unix:"
    )
    async with aclosing(service.Watch(pb.WatchRequest(), context)) as messages:
        while not (await anext(messages)).HasField("snapshot_end"):
            pass
        _change(agent.runtime.feed, PILE_LARGEST + 1)
        assert (await anext(messages)).HasField("snapshot_begin")
