"""The libraries of Standard Webhooks in PyPI and npm verify what the control plane sends."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from controlplane.domain.webhooks.signing import new_secret
from tests.support.controlplane.system import System
from tests.support.controlplane.webhook_receiver import Received, Receiver
from tests.support.node_programs import need_node, run_node

NPM = """
import { text } from "node:stream/consumers";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
const { secret, body, headers } = JSON.parse(await text(process.stdin));
try {
  console.log(JSON.stringify({ message: new Webhook(secret).verify(body, headers) }));
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.log(JSON.stringify({ refusal: error.message }));
}
"""

Verify = Callable[[Received, str], Awaitable[bool]]

pytestmark = pytest.mark.system(webhook_networks=("127.0.0.0/8",), webhook_plain_http=True)


async def pypi(request: Received, secret: str) -> bool:
    try:
        message = Webhook(secret).verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return False
    assert message == request.message
    return True


async def npm(request: Received, secret: str) -> bool:
    headers = dict(request.headers)
    given = {"secret": secret, "body": request.body.decode(), "headers": headers}
    found = json.loads(await run_node(NPM, json.dumps(given)))
    if "refusal" in found:
        return False
    assert found["message"] == request.message
    return True


@pytest.fixture(params=[pypi, npm])
def verify(request: pytest.FixtureRequest) -> Verify:
    """Return whether a library accepts a request with a secret."""
    if request.param is npm:
        need_node()
    library: Verify = request.param
    return library


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest.fixture
async def webhook(system: System, receiver: Receiver) -> Any:
    """A webhook for events of new tokens."""
    body = {"url": receiver.url, "kinds": ["token.created"]}
    return (await system.call("POST", "/webhook", json=body)).expect(201).json


async def cause(system: System, name: str) -> None:
    body = {"name": name, "scopes": ["session:read"]}
    (await system.call("POST", "/token", json=body)).expect(201)


async def test_each_request_is_verified(
    system: System, receiver: Receiver, webhook: Any, verify: Verify
) -> None:
    receiver.answers(500)
    (await system.call("POST", f"/webhook/{webhook['id']}/test")).expect(200)
    await cause(system, "a")
    await cause(system, "Ünïcode 🎲")
    for request in await receiver.gets(3):
        assert await verify(request, webhook["secret"])
        assert not await verify(request, new_secret())


async def test_both_secrets_verify_during_a_rotation(
    system: System, receiver: Receiver, webhook: Any, verify: Verify
) -> None:
    await cause(system, "before")
    await receiver.gets(1)
    answer = await system.call("POST", f"/webhook/{webhook['id']}/secret")
    rotated = answer.expect(200).json["secret"]
    await cause(system, "during")
    [before, during] = await receiver.gets(2)
    assert await verify(before, webhook["secret"])
    assert not await verify(before, rotated)
    assert await verify(during, webhook["secret"])
    assert await verify(during, rotated)
    assert not await verify(during, new_secret())


async def test_changed_request_is_refused(
    system: System, receiver: Receiver, webhook: Any, verify: Verify
) -> None:
    await cause(system, "a")
    [request] = await receiver.gets(1)
    assert not await verify(replace(request, body=request.body + b" "), webhook["secret"])
    later = str(int(request.headers["webhook-timestamp"]) + 1)
    for name, value in [("webhook-id", "msg_1"), ("webhook-timestamp", later)]:
        headers = request.headers.copy()
        headers[name] = value
        assert not await verify(replace(request, headers=headers), webhook["secret"])
    assert await verify(request, webhook["secret"])
