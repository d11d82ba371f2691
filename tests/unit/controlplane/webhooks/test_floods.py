"""An attempt receives a bounded number of bytes."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controlplane.domain.webhooks.retries import Outcome
from tests.support.certificates import SERVES, Signer, trusting
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.webhooks.raw_endpoint import Endpoint, address_of, send, serving

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("is_tls", [False, True])
async def test_endpoint_that_sends_interim_responses_without_end_is_left(
    endpoint: Endpoint, stack: AsyncExitStack, tmp_path: Path, *, is_tls: bool
) -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(INTERIM * 1000)
            await writer.drain()

    authority = Signer.new()
    party = authority.sign(SERVES, hosts=["127.0.0.1"])
    await endpoint.start(flood, serving(party, tmp_path) if is_tls else None)
    url = address_of(endpoint)
    if is_tls:
        url = url.replace("http:", "https:")
    # The clock stands still: the attempt is ended by the number of bytes alone.
    answer = await send(stack, url, tls=trusting(authority.certificate), clock=FakeClock())
    assert answer.outcome is Outcome.INVALID
    assert answer.error == "its answer is too long"


async def test_answer_after_interim_responses_counts(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    await endpoint.answer(INTERIM * 100, b"HTTP/1.1 204 X\r\n\r\n")
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is Outcome.DELIVERED
