"""Attempts are bounded, and say what the endpoint has answered."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest

from controlplane.domain.webhooks.attempts import MAX_ANSWER
from controlplane.domain.webhooks.retries import Outcome
from controlplane.webhooks.sender import MAX_HEADERS, TOTAL_SECONDS
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.webhooks.raw_endpoint import BODY, OK, Endpoint, address_of, send


async def test_message_is_posted_with_its_headers(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    await endpoint.answer(OK)
    answer = await send(stack, address_of(endpoint, "/hook?a=%2Fb&c"))
    assert answer.outcome is Outcome.DELIVERED
    assert answer.status == 200
    [request] = endpoint.requests
    assert request.startswith(b"POST /hook?a=%2Fb&c HTTP/1.1\r\n")
    assert b"\r\nwebhook-id: m\r\n" in request
    assert b"\r\nContent-Type: application/json\r\n" in request
    assert b"\r\nUser-Agent: Tiltyard/" in request
    assert request.endswith(BODY)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (204, Outcome.DELIVERED),
        (410, Outcome.GONE),
        (429, Outcome.THROTTLED),
        (500, Outcome.REJECTED),
    ],
)
async def test_status_is_the_outcome(
    endpoint: Endpoint, stack: AsyncExitStack, status: int, outcome: Outcome
) -> None:
    await endpoint.answer(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is outcome
    assert answer.status == status


async def test_redirect_is_not_followed(endpoint: Endpoint, stack: AsyncExitStack) -> None:
    other = Endpoint(stack)
    await other.answer(OK)
    location = f"Location: {address_of(other)}\r\n".encode()
    await endpoint.answer(b"HTTP/1.1 307 X\r\nContent-Length: 0\r\n" + location + b"\r\n")
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is Outcome.REDIRECTED
    assert other.connections == 0


async def test_beginning_of_the_answer_is_kept_and_no_more_is_read(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    size = 10_000_000
    head = f"HTTP/1.1 500 X\r\nContent-Length: {size}\r\n\r\n".encode()
    sent = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(head)
        for _part in range(size // 10_000):
            writer.write(b"x" * 10_000)
            await writer.drain()
            sent += 10_000

    await endpoint.start(serve)
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is Outcome.REJECTED
    assert answer.text == "x" * MAX_ANSWER
    async with asyncio.timeout(10):
        await endpoint.left.wait()
    assert sent < size


async def test_answer_that_is_no_text_is_kept_as_text(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    await endpoint.answer(b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\n\xff\x00a\xc3")
    assert (await send(stack, address_of(endpoint))).text == "��a�"


async def test_compressed_answer_is_not_unpacked(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
    await endpoint.answer(head + b"abc")
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is Outcome.DELIVERED
    assert answer.text == "abc"


async def test_endpoint_that_hangs_is_left_after_the_timeout(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    await endpoint.answer()
    clock = FakeClock()
    attempt = asyncio.create_task(send(stack, address_of(endpoint), clock=clock))
    await endpoint.reached.wait()
    await clock.advance(TOTAL_SECONDS - 0.1)
    assert not attempt.done()
    await clock.advance(0.1)
    answer = await attempt
    assert answer.outcome is Outcome.TIMEOUT
    assert answer.seconds == pytest.approx(TOTAL_SECONDS)
    assert answer.error == "no answer within 20 s"


async def test_endpoint_that_drips_its_headers_is_left_after_the_timeout(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    more = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in (b"HTTP/1.1 200 OK\r\n", b"X-A: ", b"b"):
            writer.write(part)
            await writer.drain()
        more.set()

    await endpoint.start(drip)
    clock = FakeClock()
    attempt = asyncio.create_task(send(stack, address_of(endpoint), clock=clock))
    await more.wait()
    await clock.advance(TOTAL_SECONDS)
    assert (await attempt).outcome is Outcome.TIMEOUT


async def test_endpoint_that_drips_its_body_has_delivered(
    endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    """The status counts; the beginning of the body is waited for a second."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab")
        await writer.drain()

    await endpoint.start(drip)
    answer = await send(stack, address_of(endpoint))
    assert answer.outcome is Outcome.DELIVERED
    assert answer.text == "ab"


@pytest.mark.parametrize(
    "answer",
    [
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: x\r\n" * (MAX_HEADERS + 1) + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 5000 + b"\r\n\r\n",
    ],
    ids=["no-http", "long-header", "many-headers", "long-status-line"],
)
async def test_answer_that_is_not_http_or_too_large_is_a_failure(
    endpoint: Endpoint, stack: AsyncExitStack, answer: bytes
) -> None:
    await endpoint.answer(answer)
    found = await send(stack, address_of(endpoint))
    assert found.outcome is Outcome.INVALID
    assert found.status is None


async def test_closed_connection_is_a_failure(endpoint: Endpoint, stack: AsyncExitStack) -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    await endpoint.start(close)
    assert (await send(stack, address_of(endpoint))).outcome is Outcome.UNREACHABLE


async def test_refused_connection_is_a_failure(endpoint: Endpoint, stack: AsyncExitStack) -> None:
    async with AsyncExitStack() as closed:
        gone = Endpoint(closed)
        await gone.answer(OK)
    answer = await send(stack, address_of(gone))
    assert answer.outcome is Outcome.UNREACHABLE
    assert "127.0.0.1" not in answer.error


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("9999999999", None),
    ],
)
async def test_retry_after_in_seconds(
    endpoint: Endpoint, stack: AsyncExitStack, text: str, seconds: float | None
) -> None:
    head = f"HTTP/1.1 429 X\r\nContent-Length: 0\r\nRetry-After: {text}\r\n\r\n"
    await endpoint.answer(head.encode())
    assert (await send(stack, address_of(endpoint))).retry_after == seconds


@pytest.mark.parametrize("seconds", [90, -90])
async def test_retry_after_as_a_date(
    endpoint: Endpoint, stack: AsyncExitStack, seconds: int
) -> None:
    clock = FakeClock()
    now = parsedate_to_datetime("Fri, 15 Jan 2027 08:00:00 GMT")
    date = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    head = f"HTTP/1.1 503 X\r\nContent-Length: 0\r\nRetry-After: {date}\r\n\r\n"
    await endpoint.answer(head.encode())
    answer = await send(stack, address_of(endpoint), clock=clock)
    assert answer.retry_after == max(0.0, seconds)
