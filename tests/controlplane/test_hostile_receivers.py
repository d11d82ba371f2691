"""Endpoints of webhooks that fail in every way, again and again, and recover."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
from aiohttp import web

from controlplane.webhooks import resolver
from tests.faults.plugin import Figure, Rounds
from tests.support.controlplane.system import System, eventually, token_id
from tests.support.controlplane.webhook_receiver import Receiver

EVENTS = 5  # In each round
LARGE = b"x" * 10_000_000
REBOUND = "rebound"
STATUSES = {"500": {}, "410": {}, "429": {"Retry-After": "3600"}, "301": {"Location": ""}}
"""The headers of each status; the location is that of another endpoint."""
FORMS = (*STATUSES, "hangs", "drips", "large", REBOUND)
MOST_GROWN = 2_000_000  # Bytes of memory after all rounds, of which one large answer has more


class Failing(Receiver):
    """An endpoint that fails in its own way until it recovers."""

    def __init__(self, form: str, elsewhere: str) -> None:
        super().__init__()
        self.form = form
        self.elsewhere = elsewhere
        self.accepted: list[str] = []
        self.recovered = asyncio.Event()

    async def accept(self, request: web.Request) -> web.StreamResponse:
        message = json.loads(await request.read())
        self.accepted.append(message["data"]["object"])
        return await super().accept(request)

    def has_accepted(self, objects: list[str]) -> bool:
        return set(self.accepted) == set(objects)

    async def fail(self, request: web.Request) -> web.StreamResponse:
        if self.form in STATUSES:
            headers = dict(STATUSES[self.form])
            if "Location" in headers:
                headers["Location"] = self.elsewhere
            return web.Response(status=int(self.form), headers=headers)
        if self.form == "hangs":
            await self.recovered.wait()
            return await self.accept(request)
        if self.form == "drips":
            response = web.StreamResponse(status=500)
            await response.prepare(request)
            await response.write(b"x")
            await self.recovered.wait()
            return response
        return web.Response(status=500, body=LARGE)


class Endpoints:
    """A good endpoint, one of each form that fails, and one that no webhook may reach."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.good = Failing("good", "")
        self.elsewhere = Receiver()
        self.failing: list[Failing] = []
        self.webhooks: dict[str, tuple[str, str]] = {}  # Id and URL, by form
        self.address = "127.0.0.1"  # Of the name whose address changes

    async def start(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.elsewhere)
        self.failing = [Failing(form, self.elsewhere.url) for form in FORMS]
        for endpoint in (self.good, *self.failing):
            await stack.enter_async_context(endpoint)
            url = endpoint.url
            if endpoint.form == REBOUND:
                url = url.replace("127.0.0.1", "hooks.example")
            body = {"url": url, "kinds": ["token.created"]}
            made = (await self.system.call("POST", "/webhook", json=body)).expect(201).json
            self.webhooks[endpoint.form] = (made["id"], url)

    async def fail(self) -> None:
        """Let all but the good one fail from now on."""
        self.address = "10.0.0.1"
        for endpoint in self.failing:
            endpoint.recovered = asyncio.Event()
            endpoint.answer = endpoint.fail

    async def recover(self) -> None:
        """Let all of them succeed, and be attempted at once."""
        self.address = "127.0.0.1"
        for endpoint in self.failing:
            endpoint.answer = endpoint.accept
            endpoint.recovered.set()
            webhook, url = self.webhooks[endpoint.form]
            body = {"url": url, "kinds": ["token.created"]}
            (await self.system.call("PUT", f"/webhook/{webhook}", json=body)).expect(200)


@pytest.fixture
async def endpoints(system: System, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoints]:
    made = Endpoints(system)
    monkeypatch.setattr(resolver, "look_up", lambda _: [(2, 6, made.address)])
    async with AsyncExitStack() as stack:
        await made.start(stack)
        yield made
        for endpoint in made.failing:
            endpoint.recovered.set()


async def one_round(endpoints: Endpoints, objects: list[str]) -> None:
    """Cause events while endpoints fail; each gets all of them once it has recovered."""
    system = endpoints.system
    for receiver in (endpoints.good, *endpoints.failing):
        receiver.received.clear()  # The memory of this test is not that of the control plane
    await endpoints.fail()
    for _ in range(EVENTS):
        body = {"name": f"t{len(objects)}", "scopes": ["session:read"]}
        made = (await system.call("POST", "/token", json=body)).expect(201).json
        objects.append(token_id(made["token"]))
    await eventually(lambda: endpoints.good.accepted == objects)
    for endpoint in endpoints.failing:
        if endpoint.form != "hangs":
            webhook, _ = endpoints.webhooks[endpoint.form]
            await system.until(f"/webhook/{webhook}", lambda shown: shown["failedEvents"] > 0)
        if endpoint.form != REBOUND:
            await endpoint.gets(1)
    await endpoints.recover()
    for endpoint in endpoints.failing:
        await eventually(partial(endpoint.has_accepted, objects))
        assert list(dict.fromkeys(endpoint.accepted)) == objects, endpoint.form


def memory() -> int:
    """Return the bytes that Python holds."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.part_alone
@pytest.mark.timeout(900)
@pytest.mark.system(webhook_networks=("127.0.0.0/8",), webhook_plain_http=True)
async def test_f58_endpoints_that_failed_in_any_way_get_every_event_in_order(
    system: System, endpoints: Endpoints, rounds: Rounds, figure: Figure
) -> None:
    objects: list[str] = []
    tracemalloc.start()
    try:
        await one_round(endpoints, objects)
        begin = memory()
        for _ in range(rounds(1, 50)):
            await one_round(endpoints, objects)
        grown = memory() - begin
    finally:
        tracemalloc.stop()
    figure("further memory in MB", round(grown / 1e6, 2))
    assert endpoints.elsewhere.received == []
    assert grown < MOST_GROWN
