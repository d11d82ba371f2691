"""Tests of webhooks whose endpoints hang hold a bounded number of attempts, and no shutdown."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from controlplane.webhooks.open_tests import MOST
from tests.support.controlplane.system import Answer, System, assert_error
from tests.support.controlplane.webhook_receiver import Receiver

pytestmark = pytest.mark.system(webhook_networks=("127.0.0.0/8",), webhook_plain_http=True)


class Hanging(Receiver):
    """An endpoint that answers once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.answer = self.hang

    async def hang(self, request: web.Request) -> web.StreamResponse:
        await self.may_answer.wait()
        return await self.accept(request)


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    async with Hanging() as running:
        yield running
        running.may_answer.set()


async def create(system: System, url: str, account: str = "alice") -> str:
    body = {"url": url, "kinds": ["webhook.gap"]}
    made: Any = await system.call("POST", "/webhook", account=account, json=body)
    return str(made.expect(201).json["id"])


async def begin_tests(
    system: System, hanging: Hanging, count: int
) -> list["asyncio.Task[Answer]"]:
    """Begin tests, and wait until their messages have arrived."""
    webhook = await create(system, hanging.url)
    path = f"/webhook/{webhook}/test"
    tasks = [asyncio.create_task(system.call("POST", path)) for _ in range(count)]
    await hanging.gets(count)
    return tasks


async def test_account_has_some_tests_at_a_time(system: System, hanging: Hanging) -> None:
    tasks = await begin_tests(system, hanging, MOST)
    webhook = await create(system, hanging.url)
    refused = await system.call("POST", f"/webhook/{webhook}/test")
    assert_error(refused, 503)
    assert int(refused.headers["Retry-After"]) > 0
    hanging.may_answer.set()
    of_bob = await create(system, hanging.url, "bob")
    other = await system.call("POST", f"/webhook/{of_bob}/test", account="bob")
    assert other.expect(200).json["outcome"] == "delivered"
    for made in await asyncio.gather(*tasks):
        assert made.expect(200).json["outcome"] == "delivered"
    again = await system.call("POST", f"/webhook/{webhook}/test")
    assert again.expect(200).json["outcome"] == "delivered"


async def test_test_under_way_does_not_delay_the_shutdown(
    system: System, hanging: Hanging
) -> None:
    [task] = await begin_tests(system, hanging, 1)
    async with asyncio.timeout(10):
        await system.stop_serving()
    assert_error(await task, 503)
    await system.serve()
