"""The claims of one stream: a limited number is in progress."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.changes.feed import Feed
from agent.domain.errors import StandbyNotClaimableError
from agent.metrics.instruments import Metrics
from agent.rpc import claim_stream
from agent.rpc.claim_stream import ClaimStream
from tests.support.agent.samples import an_id
from tests.support.fake_clock import FakeClock
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import ERROR_REASONS
from tiltyard.contract import ErrorReason

AT_ONCE = 2
CLAIMS = 7


class SlowPools:
    """Refuses each claim after some steps of the event loop."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.most_in_progress = 0

    def standby(self, _: str) -> None:
        """Return no standby: the whole session is reported."""

    async def claim(self, internal_id: str, _: object) -> None:
        self.in_progress += 1
        self.most_in_progress = max(self.most_in_progress, self.in_progress)
        for _step in range(CLAIMS):
            await asyncio.sleep(0)
        self.in_progress -= 1
        raise StandbyNotClaimableError(internal_id)


async def requests() -> AsyncIterator[pb.ClaimSessionsRequest]:
    identity = pb.Identity(account="acme", application="game", session_id="match")
    yield pb.ClaimSessionsRequest(
        claims=[
            pb.Claim(number=number, internal_id=an_id(), identity=identity)
            for number in range(CLAIMS)
        ]
    )


async def test_claims_beyond_those_in_progress_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_stream, "MAX_AT_ONCE", AT_ONCE)
    pools: Any = SlowPools()
    stream = ClaimStream(pools, Feed(), Metrics(), FakeClock())
    answered: list[int] = []
    async for results in stream.results(requests()):
        answered += [result.number for result in results]
    assert sorted(answered) == list(range(CLAIMS))
    assert pools.most_in_progress == AT_ONCE


async def test_claim_out_of_bounds_is_refused_with_its_field() -> None:
    async def one_request() -> AsyncIterator[pb.ClaimSessionsRequest]:
        yield pb.ClaimSessionsRequest(claims=[pb.Claim(number=1, internal_id="x" * 1000)])

    pools: Any = SlowPools()
    stream = ClaimStream(pools, Feed(), Metrics(), FakeClock())
    [[result]] = [results async for results in stream.results(one_request())]
    assert result.reason == ERROR_REASONS[ErrorReason.INVALID_ARGUMENT]
    assert "Claim.internal_id" in result.error
    assert pools.most_in_progress == 0
