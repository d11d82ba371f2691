"""Webhooks as callers configure them."""

from typing import Any

import pytest

from tests.support.controlplane.system import Answer, System, assert_error

URL = "https://hooks.example/tiltyard"
FULL: dict[str, Any] = {
    "url": "https://hooks.example:8443/a?key=secret",
    "description": "matchmaker é",
    "kinds": ["session.*", "tag.enabled"],
    "image": "game",
    "location": "local",
    "labels": {"stage": "final"},
    "ordered": False,
    "enabled": False,
}
BARE: dict[str, Any] = {
    "description": "",
    "kinds": [],
    "image": None,
    "location": None,
    "labels": {},
    "ordered": True,
    "enabled": True,
    "disabledBecause": None,
    "failedEvents": 0,
    "failingSince": None,
    "nextAttempt": None,
    "formerSecretUntil": None,
}
QUIET = {"kinds": ["webhook.gap"]}


async def create(system: System, **body: Any) -> Any:
    made = await system.call("POST", "/webhook", json=body)
    return made.expect(201).json


async def put(system: System, webhook: str, **body: Any) -> Answer:
    return await system.call("PUT", f"/webhook/{webhook}", json=body)


async def test_webhook_has_its_fields_until_it_is_removed(system: System) -> None:
    made = await create(system, **FULL)
    assert {key: made[key] for key in FULL} == FULL
    assert made["disabledBecause"] == "requested"
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    path = f"/webhook/{made['id']}"
    assert await system.read(path) == made
    assert await system.read("/webhook") == {"webhooks": [made]}
    removed = await system.call("DELETE", path)
    assert removed.expect(204).body == b""
    assert_error(await system.call("GET", path), 404)
    assert_error(await system.call("DELETE", path), 404)


async def test_absent_and_null_fields_have_defaults(system: System) -> None:
    nothing = dict.fromkeys(FULL.keys() - {"url"})
    for body in ({}, nothing):
        quiet = {} if body else QUIET
        made = await create(system, url=URL, **body, **quiet)
        wanted = BARE | quiet
        assert {key: made[key] for key in wanted} == wanted


async def test_put_replaces_all_fields(system: System) -> None:
    made = await create(system, **FULL)
    changed = (await put(system, made["id"], url=URL, **QUIET)).expect(200).json
    wanted = BARE | QUIET | {"url": URL, "created": made["created"]}
    assert {key: changed[key] for key in wanted} == wanted
    assert "secret" not in changed


async def test_secret_is_in_no_other_answer(system: System) -> None:
    made = await create(system, url=URL, **QUIET)
    rotated = await system.call("POST", f"/webhook/{made['id']}/secret")
    secrets = {made["secret"], rotated.expect(200).json["secret"]}
    assert len(secrets) == 2
    texts = [
        (await system.call("GET", path)).text
        for path in ("/webhook", f"/webhook/{made['id']}", "/operator/audit")
    ]
    assert not any(secret in text for secret in secrets for text in texts)
    shown = await system.read(f"/webhook/{made['id']}")
    assert shown["formerSecretUntil"] == rotated.json["formerSecretUntil"]


async def test_secrets_are_sealed_in_the_database(system: System) -> None:
    made = await create(system, url=URL, **QUIET)
    [(sealed,)] = await system.rows("SELECT sealed_secret FROM webhook")
    assert made["secret"].encode() not in sealed


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://user@hooks.example/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": "https://169.254.169.254/latest"}, "url"),
        ({"url": URL, "kinds": ["session.none"]}, "kinds[0]"),
        ({"url": URL, "kinds": ["*"]}, "kinds[0]"),
        ({"url": URL, "kinds": ["session.ready", "none.*"]}, "kinds[1]"),
        ({"url": URL, "kinds": ["region.created"]}, "kinds[0]"),
        ({"url": URL, "kinds": ["token.*"] * 101}, "kinds"),
        ({"url": URL, "labels": {str(n): "" for n in range(21)}}, "labels"),
        ({"url": URL, "description": "x" * 257}, "description"),
        ({"url": URL, "description": "a\nb"}, "description"),
        ({"url": URL, "secret": "whsec_x"}, "secret"),
    ],
)
async def test_what_is_no_webhook_is_refused(
    system: System, body: dict[str, Any], field: str
) -> None:
    assert_error(await system.call("POST", "/webhook", json=body), 422, field)
    made = await create(system, url=URL, **QUIET)
    assert_error(await put(system, made["id"], **body), 422, field)


async def test_account_has_at_most_twenty(system: System) -> None:
    for _ in range(20):
        await create(system, url=URL, **QUIET)
    refused = await system.call("POST", "/webhook", json={"url": URL})
    assert_error(refused, 409, details="the account has 20 webhooks, the maximum")
    body = {"url": URL} | QUIET
    (await system.call("POST", "/webhook", account="bob", json=body)).expect(201)


async def test_changes_are_audited_without_the_path_of_the_url(system: System) -> None:
    made = await create(system, **FULL)
    (await put(system, made["id"], **FULL)).expect(200)  # changes nothing
    (await put(system, made["id"], **FULL | {"enabled": True, "location": None})).expect(200)
    (await system.call("POST", f"/webhook/{made['id']}/secret")).expect(200)
    (await system.call("DELETE", f"/webhook/{made['id']}")).expect(204)
    found = await system.events("webhook.%", "kind, object, data")
    assert [kind for kind, _, _ in found] == [
        "webhook.created",
        "webhook.changed",
        "webhook.enabled",
        "webhook.rotated",
        "webhook.removed",
    ]
    assert {name for _, name, _ in found} == {made["id"]}
    assert found[0][2] == '{"host": "hooks.example:8443"}'
    assert found[1][2] == '{"fields": ["location"]}'
    assert not any("secret" in data for _, _, data in found)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ("1-999999", 410),
        ("2-1", 410),
        ("1-0", 422),
        ("1", 422),
        ("1-1-1", 422),
        ("-1", 422),
    ],
)
async def test_event_that_cannot_be_replayed_is_refused(
    system: System, event: str, status: int
) -> None:
    made = await create(system, url=URL, **QUIET)
    path = f"/webhook/{made['id']}/replay"
    assert_error(await system.call("POST", path, json={"event": event}), status)
    assert (await system.read(f"/webhook/{made['id']}"))["position"] == made["position"]


@pytest.mark.system(webhook_networks=("127.0.0.0/8",), webhook_plain_http=True)
async def test_operators_allow_networks_and_plain_http(system: System) -> None:
    await create(system, url="http://127.0.0.1:9/", **QUIET)
    refused = await system.call("POST", "/webhook", json={"url": "http://10.0.0.1/"})
    assert_error(refused, 422, "url")


async def test_operators_see_webhooks_of_all_accounts_without_their_paths(
    system: System,
) -> None:
    for account in ("alice", "bob"):
        body = FULL | {"image": None, "location": None, "labels": None}
        (await system.call("POST", "/webhook", account=account, json=body)).expect(201)
    listed = await system.call("GET", "/operator/webhook")
    assert [each["account"] for each in listed.json["webhooks"]] == ["alice", "bob"]
    assert "secret" not in listed.text
    [shown] = (await system.read("/operator/webhook?account=bob"))["webhooks"]
    assert shown["host"] == "hooks.example:8443"
    assert shown["disabledBecause"] == "requested"
    assert (await system.read("/operator/webhook?account=none"))["webhooks"] == []


async def test_webhooks_end_with_their_account(system: System) -> None:
    await create(system, url=URL, **QUIET)
    (await system.call("DELETE", "/operator/account/alice")).expect(204)
    assert await system.rows("SELECT id FROM webhook") == []
