"""Events reach the endpoints of webhooks, whatever the endpoints do."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.storage.tables.webhooks.webhooks import find
from tests.support.controlplane.system import System, eventually, eventually_equals, token_id
from tests.support.controlplane.transactions import Go, intercept
from tests.support.controlplane.webhook_receiver import Receiver
from tests.support.hold import Hold

SETTINGS = {"webhook_networks": ("127.0.0.0/8",), "webhook_plain_http": True}

pytestmark = pytest.mark.system(**SETTINGS)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


async def create(system: System, url: str, *, account: str = "alice", **fields: Any) -> Any:
    body = {"url": url, "kinds": ["token.created"]} | fields
    made = await system.call("POST", "/webhook", account=account, json=body)
    return made.expect(201).json


async def cause(system: System, *names: str, account: str = "alice") -> list[str]:
    """Cause events of tokens, one after another; return their objects."""
    objects = []
    for name in names:
        body = {"name": name, "scopes": ["session:read"]}
        made = await system.call("POST", "/token", account=account, json=body)
        objects.append(token_id(made.expect(201).json["token"]))
    return objects


async def deliveries(system: System, webhook: str) -> list[Any]:
    """Read the attempts, the oldest first."""
    found = await system.read(f"/webhook/{webhook}/delivery")
    return list(reversed(found["deliveries"]))


async def test_events_are_delivered_in_order_and_signed(
    system: System, receiver: Receiver
) -> None:
    webhook = await create(system, receiver.url)
    objects = await cause(system, "a", "b", "c")
    received = await receiver.gets(3)
    assert [each.object for each in received] == objects
    for each in received:
        each.verify(webhook["secret"])
        assert each.kind == "token.created"
        assert each.id == f"msg_{webhook['id']}_{each.message['data']['id']}"
        assert each.message["data"]["account"] == "alice"
    assert len({each.id for each in received}) == 3


async def test_attempts_are_listed(system: System, receiver: Receiver) -> None:
    webhook = await create(system, receiver.url)
    await cause(system, "a")
    [received] = await receiver.gets(1)
    await eventually_equals(lambda: _outcomes(system, webhook["id"]), ["delivered"])
    [shown] = await deliveries(system, webhook["id"])
    assert shown["event"] == received.message["data"]["id"]
    assert shown["type"] == "token.created"
    assert shown["status"] == 204
    assert shown["error"] is None
    assert shown["durationMs"] >= 0


async def _outcomes(system: System, webhook: str) -> list[str]:
    return [each["outcome"] for each in await deliveries(system, webhook)]


async def test_webhook_starts_with_what_happens_after_it(
    system: System, receiver: Receiver
) -> None:
    await cause(system, "before")
    await create(system, receiver.url)
    [after] = await cause(system, "after")
    assert await receiver.gets_objects([after]) == [after]


async def test_events_of_other_accounts_are_not_delivered(
    system: System, receiver: Receiver
) -> None:
    await create(system, receiver.url, kinds=None)
    await cause(system, "theirs", account="bob")
    [own] = await cause(system, "own")
    received = await receiver.gets_objects([own])
    assert received[-1] == own
    assert {each.message["data"]["account"] for each in receiver.received} == {"alice"}


async def test_410_disables_the_webhook_at_once(system: System, receiver: Receiver) -> None:
    receiver.answers(410)
    webhook = await create(system, receiver.url)
    await cause(system, "a")
    await system.until(f"/webhook/{webhook['id']}", lambda shown: not shown["enabled"])
    shown = await system.read(f"/webhook/{webhook['id']}")
    assert shown["disabledBecause"] == "gone"
    [event] = await system.events("webhook.disabled", "account, actor, object, data")
    assert event == (
        "alice",
        "controlplane",
        webhook["id"],
        '{"cause": "gone", "status": 410}',
    )


async def test_enabled_webhook_goes_on_with_the_event_that_was_refused(
    system: System, receiver: Receiver
) -> None:
    receiver.answers(410)
    webhook = await create(system, receiver.url)
    objects = await cause(system, "a")
    await system.until(f"/webhook/{webhook['id']}", lambda shown: not shown["enabled"])
    objects += await cause(system, "b")
    body = {"url": receiver.url, "kinds": ["token.created"]}
    (await system.call("PUT", f"/webhook/{webhook['id']}", json=body)).expect(200)
    received = await receiver.gets(3)
    assert [each.object for each in received] == [objects[0], *objects]
    assert received[0].id == received[1].id
    await eventually(lambda: _has_come_up(system, webhook["id"]))


async def _has_come_up(system: System, webhook: str) -> bool:
    shown = await system.read(f"/webhook/{webhook}")
    return shown["failedEvents"] == 0 and shown["failingSince"] is None


async def test_test_message_is_sent_at_once_and_shown(system: System, receiver: Receiver) -> None:
    receiver.answers(500)
    webhook = await create(system, receiver.url, enabled=False)
    answer = await system.call("POST", f"/webhook/{webhook['id']}/test")
    shown = answer.expect(200).json
    assert shown["outcome"] == "rejected"
    assert shown["status"] == 500
    assert shown["answer"] == "answer 500"
    assert shown["type"] == "webhook.test"
    [received] = receiver.received
    received.verify(webhook["secret"])
    assert [each["number"] for each in await deliveries(system, webhook["id"])] == [1]


async def test_events_are_delivered_again_from_an_event_on(
    system: System, receiver: Receiver
) -> None:
    webhook = await create(system, receiver.url)
    objects = await cause(system, "a", "b", "c")
    received = await receiver.gets(3)
    first = received[1].message["data"]["id"]
    path = f"/webhook/{webhook['id']}/replay"
    (await system.call("POST", path, json={"event": first})).expect(204)
    received = await receiver.gets(5)
    assert [each.object for each in received[3:]] == objects[1:]
    assert received[3].id == received[1].id


async def test_both_secrets_verify_after_a_rotation(system: System, receiver: Receiver) -> None:
    webhook = await create(system, receiver.url)
    answer = await system.call("POST", f"/webhook/{webhook['id']}/secret")
    rotated = answer.expect(200).json
    await cause(system, "a")
    [received] = await receiver.gets(1)
    received.verify(webhook["secret"])
    received.verify(rotated["secret"])


async def test_webhook_outlives_the_token_that_has_made_it(
    system: System, receiver: Receiver
) -> None:
    token = await system.make_token(name="maker", scopes=["webhook:write"])
    body = {"url": receiver.url, "kinds": ["token.created"]}
    (await system.call("POST", "/webhook", token=token, json=body)).expect(201)
    (await system.call("DELETE", f"/operator/token/{token_id(token)}")).expect(200)
    [after] = await cause(system, "after")
    assert await receiver.gets_objects([after]) == [after]


async def test_restart_goes_on_with_the_next_event(system: System, receiver: Receiver) -> None:
    await create(system, receiver.url)
    objects = await cause(system, "a", "b")
    await receiver.gets(2)
    await system.restart()
    objects += await cause(system, "c")
    await receiver.gets_objects(objects)
    assert [each.object for each in receiver.received][-1] == objects[-1]


async def test_removed_webhook_delivers_nothing(system: System, receiver: Receiver) -> None:
    removed = await create(system, receiver.url + "/removed")
    await create(system, receiver.url + "/kept")
    (await system.call("DELETE", f"/webhook/{removed['id']}")).expect(204)
    await cause(system, "a")
    [received] = await receiver.gets(1)
    assert received.path == "/hook/kept"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", {"url": "https://other.example/hook", "kinds": ["token.created"]}),
        ("DELETE", "", None),
        ("POST", "/secret", None),
        ("POST", "/replay", {"event": "1-1"}),
    ],
)
async def test_change_is_answered_once_deliveries_follow_it(
    system: System,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: dict[str, str] | None,
) -> None:
    webhook = await create(system, receiver.url)
    applying = Hold()

    async def held(go: Go) -> Any:
        await applying()
        return await go()

    intercept(monkeypatch, find, held)
    url = f"/webhook/{webhook['id']}"
    call = asyncio.create_task(system.call(method, url + path, json=body), name="change")
    await applying.reached.wait()
    for _ in range(20):
        await system.read("/webhook")
    assert not call.done()
    applying.set()
    assert (await call).status in {200, 204}


async def test_older_copy_of_the_database_is_a_gap(system: System, receiver: Receiver) -> None:
    webhook = await create(system, receiver.url)
    await cause(system, "a")
    await receiver.gets(1)
    await eventually_equals(lambda: _outcomes(system, webhook["id"]), ["delivered"])
    await system.stop_serving()
    state = system.config.state_dir
    copy = system.folder / "copy"
    shutil.copytree(state, copy)
    await system.serve()
    await cause(system, "b")
    await receiver.gets(2)
    await system.stop_serving()
    for path in copy.glob("controlplane.db*"):
        shutil.copy(path, state / path.name)
    await system.serve()
    objects = await cause(system, "c")
    received = await receiver.gets(4)
    assert [each.kind for each in received[2:]] == ["webhook.gap", "token.created"]
    gap = received[2].message["data"]
    assert gap["object"] == webhook["id"]
    assert gap["data"]["cause"] == "restored"
    assert gap["data"]["to"] is None
    assert received[3].object == objects[0]
    epochs = [each.message["data"]["id"].split("-")[0] for each in received]
    assert epochs[0] == epochs[1]
    assert epochs[1] != epochs[2]
    assert len({each.id for each in received}) == 4
