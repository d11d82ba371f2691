from agent.changes.feed import PILE_LARGEST, Changes, Feed
from agent.domain.sessions.session import Session
from tests.support.agent.samples import a_session


def _change(feed: Feed, count: int) -> list[Session]:
    """Report changes of this number of sessions."""
    changed = [a_session().with_changes(sequence=feed.stamp()) for _ in range(count)]
    for session in changed:
        feed.session_changed(session)
    return changed


async def test_newest_change_of_a_session_is_kept() -> None:
    feed = Feed()
    session = a_session()
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


async def test_change_that_can_wait_is_taken_soon() -> None:
    feed = Feed()
    session = a_session()
    with feed.subscribe() as subscription:
        for _ in range(2):
            feed.session_changed(session, can_wait=True)
            assert await subscription.take(3600.0) == Changes((session,), host=True)
