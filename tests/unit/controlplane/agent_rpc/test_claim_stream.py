"""Claims share one stream: many in a message, each with its own result."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError
from controlplane.domain.hosts.contract import Claim
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.fake_clock import until_idle
from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import PORTION_BYTES, PORTION_ITEMS, portions
from tiltyard.contract import ErrorReason, Identity, Resources

TIMEOUT = 60.0


class Host(FakeAgent):
    """Answers claims by their internal id, once `go_on` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.messages: list[list[str]] = []
        self.streams = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def ClaimSessions(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ClaimSessionsRequest], context: Any
    ) -> AsyncIterator[agent_pb2.ClaimSessionsResponse]:
        self.streams += 1
        async for request in requests:
            self.messages.append([claim.internal_id for claim in request.claims])
            await self.go_on.wait()
            results = [_result(claim) for claim in reversed(request.claims)]
            if any(result.error == "break" for result in results):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            yield agent_pb2.ClaimSessionsResponse(
                results=[result for result in results if result.error != "none"], incarnation="i"
            )


def _result(claim: agent_pb2.Claim) -> agent_pb2.ClaimResult:
    result = agent_pb2.ClaimResult(number=claim.number)
    match claim.internal_id:
        case "refused":
            result.reason = agent_pb2.ERROR_REASON_DRAINING
            result.error = "it drains"
        case "newer":
            result.reason = 999  # type: ignore[assignment]
            result.error = "of a newer agent"
        case "changes":
            result.claimed.sequence = 7
        case "break" | "none" as kind:
            result.error = kind
        case internal_id:
            result.session.format = 1
            result.session.internal_id = internal_id
            result.session.state = agent_pb2.STATE_RUNNING
    return result


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    await host.start()
    yield host
    await host.stop()


@pytest.fixture
async def client(host: Host) -> AsyncIterator[AgentClient]:
    client = AgentClient(host.address)
    yield client
    await client.close()


def claiming(client: AgentClient, name: str, timeout: float = TIMEOUT) -> asyncio.Task[str]:
    async def internal_id() -> str:
        identity = Identity("acme", "m1", "game", "v1", "local", {}, "")
        answer = await client.claim_session(
            Claim(name, identity, None, "{}", Resources(1, 1)), timeout
        )
        return answer.session.internal_id

    return asyncio.create_task(internal_id())


async def test_claims_that_wait_share_a_message(client: AgentClient, host: Host) -> None:
    names = [f"c{number}" for number in range(50)]
    assert await asyncio.gather(*(claiming(client, name) for name in names)) == names
    assert await claiming(client, "later") == "later"
    assert [name for message in host.messages for name in message] == [*names, "later"]
    assert len(host.messages) <= 3
    assert host.streams == 1


async def test_a_refusal_is_of_one_claim(client: AgentClient) -> None:
    refused, newer, claimed = (claiming(client, name) for name in ("refused", "newer", "ok"))
    with pytest.raises(AgentRefusedError, match="it drains") as error:
        await refused
    assert error.value.agent_reason is ErrorReason.DRAINING
    with pytest.raises(AgentUnavailableError, match="newer"):
        await newer
    assert await claimed == "ok"


async def test_changes_of_a_standby_that_is_not_known_are_no_answer(client: AgentClient) -> None:
    with pytest.raises(AgentUnavailableError, match="not known"):
        await claiming(client, "changes")


@pytest.mark.part_alone
async def test_f50_a_broken_stream_fails_what_waits_and_is_opened_again(
    client: AgentClient, host: Host
) -> None:
    host.go_on.clear()
    lost = [claiming(client, name) for name in ("one", "break")]
    while not host.messages:
        await asyncio.sleep(0)
    unsent = claiming(client, "unsent")
    host.go_on.set()
    for claim in (*lost, unsent):
        with pytest.raises(AgentUnavailableError):
            await claim
    assert await claiming(client, "again") == "again"
    assert host.streams == 2


@pytest.mark.part_alone
async def test_f50_a_claim_without_a_result_ends_with_its_time(client: AgentClient) -> None:
    with pytest.raises(AgentUnavailableError, match="in time"):
        await claiming(client, "none", timeout=0.05)
    assert await claiming(client, "next") == "next"


async def test_closing_ends_the_waits(client: AgentClient, host: Host) -> None:
    host.go_on.clear()
    waiting = claiming(client, "one")
    while not host.messages:
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(AgentUnavailableError):
        await waiting
    await until_idle()


def test_messages_are_split_by_their_size() -> None:
    small = agent_pb2.Claim(number=1)
    large = agent_pb2.Claim(request_json="x" * PORTION_BYTES)
    assert list(portions([])) == []
    assert list(portions([small, large, small, small])) == [[small], [large], [small, small]]


def test_messages_are_split_by_their_number() -> None:
    count = PORTION_ITEMS + 1
    sizes = [len(portion) for portion in portions(agent_pb2.Claim() for _ in range(count))]
    assert sizes == [PORTION_ITEMS, 1]
