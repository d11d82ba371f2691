"""A webhook that has missed events says so, and goes on."""

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.players import PlayersJoined
from controlplane.domain.events.positions import Position
from controlplane.domain.events.sessions import SessionSubject
from controlplane.domain.webhooks.retries import DELAYS
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch, position
from controlplane.storage.tables.accounting.event_retention import remove_of_players, remove_old
from controlplane.storage.tables.webhooks import webhooks
from controlplane.webhooks.endpoint import SAVED_EVERY
from tests.support.fake_clock import until_idle
from tests.support.hold import Hold
from tests.unit.controlplane.webhooks.delivering import ACTOR, LETTERS, Delivering

URL = "https://hooks.example/"
ALL: tuple[str, ...] = ()


async def remove_all(delivering: Delivering) -> None:
    """Remove the events so far, as retention does."""
    later = delivering.clock.time() + 1
    await delivering.run(remove_old, 0, before=later, now=later)


async def newest(delivering: Delivering) -> Position:
    return await delivering.store.look(position)


async def test_webhook_behind_the_retention_is_notified_of_the_gap(
    delivering: Delivering,
) -> None:
    webhook = await delivering.create(URL)
    await delivering.cause("a")
    begin = await newest(delivering)
    await delivering.stop()
    await delivering.cause("lost", "lost too")
    end = await newest(delivering)
    await remove_all(delivering)
    await delivering.cause("b")
    await delivering.start()
    gap = {"from": f"1-{begin.number + 1}", "to": str(end), "cause": "retention"}
    assert await delivering.events("webhook.gap") == [gap]
    assert [sent.kind for sent in delivering.sender.sent] == [
        "token.revoked",
        "webhook.gap",
        "token.revoked",
    ]
    notified = delivering.sender.sent[1]
    assert notified.data["data"] == gap
    assert notified.data["object"] == webhook.id
    assert notified.data["id"] == str(await newest(delivering))
    assert notified.id == f"msg_{webhook.id}_{await newest(delivering)}"
    assert delivering.sender.objects(URL)[-1] == "b"


async def test_message_about_a_gap_is_retried_as_others(delivering: Delivering) -> None:
    await delivering.create(URL)
    await delivering.stop()
    await delivering.cause("lost")
    await remove_all(delivering)
    await delivering.cause("b")
    delivering.sender.answers[URL] = [500]
    await delivering.start()
    assert [sent.kind for sent in delivering.sender.sent] == ["webhook.gap"]
    await delivering.stop()
    await delivering.start()
    await delivering.clock.advance(DELAYS[0])
    kinds = [sent.kind for sent in delivering.sender.sent]
    assert kinds == ["webhook.gap", "webhook.gap", "token.revoked"]


async def test_failed_event_that_was_removed_is_a_gap(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500]
    webhook = await delivering.create(URL)
    await delivering.cause("a")
    failed = delivering.sender.sent[0].data["id"]
    await remove_all(delivering)
    await delivering.stop()
    await delivering.cause("b")
    await delivering.start()
    await delivering.clock.advance(DELAYS[0])
    [gap, *_] = await delivering.events("webhook.gap")
    assert gap == {"from": failed, "to": failed, "cause": "retention"}
    assert delivering.sender.objects(URL)[-1] == "b"
    assert (await delivering.state(webhook)).failed == 0


async def cause_players(delivering: Delivering, *players: str) -> None:
    """Append an event of players of a session."""
    subject = SessionSubject("alice", "m", "game", "v1", "local", "{}")
    event = PlayersJoined(*subject.named(ITSELF, delivering.clock.time()), players=players)
    await delivering.run(lambda db: db.append(event))


async def test_webhook_has_players_only_if_its_filter_names_them(delivering: Delivering) -> None:
    await delivering.create(URL, kinds=ALL)
    await delivering.create(f"{URL}named", kinds=("players.joined",))
    await cause_players(delivering, "ann")
    await delivering.cause("a")
    sent = [(one.url, one.kind) for one in delivering.sender.sent]
    assert (f"{URL}named", "players.joined") in sent
    assert (URL, "token.revoked") in sent
    assert (URL, "players.joined") not in sent


async def test_failed_event_of_players_is_sent_again(delivering: Delivering) -> None:
    delivering.sender.answers[URL] = [500]
    webhook = await delivering.create(URL, kinds=("players.*",))
    await cause_players(delivering, "ann")
    await delivering.stop()
    await delivering.start()
    await delivering.clock.advance(DELAYS[0])
    assert [one.data["data"]["players"] for one in delivering.sender.sent] == [["ann"], ["ann"]]
    assert (await delivering.state(webhook)).failed == 0


async def test_failed_event_is_sent_again_after_later_ones_were_removed(
    delivering: Delivering,
) -> None:
    delivering.sender.answers[URL] = [500]
    await delivering.create(URL, kinds=("token.*", "players.*"))
    await delivering.cause("a")
    await cause_players(delivering, "ann")
    await delivering.stop()
    await delivering.run(remove_of_players, delivering.clock.time() + 1)
    await delivering.start()
    await delivering.clock.advance(DELAYS[0])
    assert delivering.sender.objects(URL)[:2] == ["a", "a"]
    assert await delivering.events("webhook.gap") != []


async def test_webhook_of_a_restored_database_goes_on_in_its_new_epoch(
    delivering: Delivering,
) -> None:
    webhook = await delivering.create(URL)
    await delivering.cause("a")
    before = await newest(delivering)
    await delivering.stop()
    await delivering.cause("b")  # not delivered before the backup
    await delivering.run(begin_epoch, delivering.clock.time())
    await delivering.start()
    gap = {"from": f"1-{before.number + 1}", "to": None, "cause": "restored"}
    assert await delivering.events("webhook.gap") == [gap]
    assert [sent.kind for sent in delivering.sender.sent] == [
        "token.revoked",
        "webhook.gap",
        "token.revoked",
    ]
    assert delivering.sender.objects(URL) == ["a", webhook.id, "b"]
    assert (await delivering.state(webhook)).position.epoch > 1


async def test_gaps_that_were_not_notified_are_one(delivering: Delivering) -> None:
    delivering.sender.always[URL] = 500
    webhook = await delivering.create(URL, ordered=False)
    begin = (await delivering.state(webhook)).position
    for name in LETTERS[:2]:
        await delivering.stop()
        await delivering.cause(name)
        end = await newest(delivering)
        await remove_all(delivering)
        await delivering.start()
    delivering.sender.always[URL] = 204
    await delivering.clock.advance(DELAYS[1])
    data = delivering.sender.sent[-1].data["data"]
    assert data["from"] == f"1-{begin.number + 1}"
    assert data["to"] == str(end)
    assert len(await delivering.events("webhook.gap")) == 1  # the others were removed
    assert (await delivering.state(webhook)).failed == 0


@pytest.mark.parametrize(
    "kinds",
    [
        ALL,
        ("webhook.*",),
    ],
)
async def test_webhook_gets_its_own_gap_once(
    delivering: Delivering, kinds: tuple[str, ...]
) -> None:
    await delivering.create(URL, kinds=kinds)
    await delivering.stop()
    await delivering.cause("lost")
    await remove_all(delivering)
    await delivering.start()
    gaps = [sent for sent in delivering.sender.sent if sent.kind == "webhook.gap"]
    assert len(gaps) == 1


async def test_other_webhooks_get_a_gap_as_an_event(delivering: Delivering) -> None:
    other = "https://other.example/"
    webhook = await delivering.create(URL)
    await delivering.stop()
    await delivering.cause("lost")
    await remove_all(delivering)
    await delivering.create(other, kinds=("webhook.gap",))
    await delivering.start()
    [sent] = [sent for sent in delivering.sender.sent if sent.url == other]
    assert sent.object == webhook.id


async def test_quiet_webhook_saves_its_position(delivering: Delivering) -> None:
    webhook = await delivering.create(URL)
    begin = (await delivering.state(webhook)).position
    await delivering.cause("theirs", account="bob")
    await delivering.clock.advance(SAVED_EVERY)
    await delivering.cause("own")
    await delivering.clock.advance(0.0)
    assert (await delivering.state(webhook)).position > begin


async def test_replay_delivers_again_and_skips(delivering: Delivering) -> None:
    gate = Hold()
    webhook = await delivering.create(URL)
    await delivering.cause("a", "b", "c")
    end = await newest(delivering)
    key = (webhook.account, webhook.id)
    now = delivering.clock.time()
    first = Position(end.epoch, end.number - 1)
    await delivering.run(webhooks.replay, key, first, actor=ACTOR, now=now)
    assert delivering.sender.objects(URL) == ["a", "b", "c", "b", "c"]
    delivering.sender.gates[URL] = gate
    await delivering.cause("d", "e", "f")
    last = await newest(delivering)
    await delivering.run(webhooks.replay, key, last, actor=ACTOR, now=now)
    delivering.sender.gates.clear()
    gate.set()
    await until_idle()
    assert delivering.sender.objects(URL)[5:] == ["d", "f"]


async def test_delivery_from_before_a_replay_does_not_move_the_position(
    delivering: Delivering,
) -> None:
    webhook = await delivering.create(URL)
    await delivering.cause("a", "b")
    end = await newest(delivering)

    def as_if_recorded_later(db: Database) -> None:
        first = Position(end.epoch, end.number - 1)
        key = (webhook.account, webhook.id)
        webhooks.replay(db, key, first, actor=ACTOR, now=delivering.clock.time())

    await delivering.stop()
    await delivering.run(as_if_recorded_later)
    state = await delivering.state(webhook)
    assert state.position == Position(end.epoch, end.number - 2)
    assert state.webhook.generation == webhook.generation + 1
