"""Claims of standbys over one stream: each in a task, and results sent as they come."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from agent.changes.feed import Feed
from agent.domain.errors import AgentError
from agent.domain.sessions.session import Session
from agent.metrics.instruments import Metrics
from agent.rpc import wire
from agent.rpc.statuses import bind_request, check_request
from agent.sessions.warm_pools import WarmPools
from tiltyard.agent.bounds import MAX_SENTENCE
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import ERROR_REASONS, portions
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

MAX_AT_ONCE = 1000  # Claims of a stream in progress; the next ones wait with the caller


class ClaimStream:
    """The claims of one stream. Its end ends the waits, not the claims."""

    def __init__(self, warm_pools: WarmPools, feed: Feed, metrics: Metrics, clock: Clock) -> None:
        self._warm_pools = warm_pools
        self._feed = feed
        self._metrics = metrics
        self._clock = clock
        self._claims = TaskOwner[None]()
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._pending = 0
        self._results: list[pb.ClaimResult] = []
        self._wake = asyncio.Event()
        self._ended = False

    def end(self) -> None:
        """End the stream after the results that are known."""
        self._ended = True
        self._wake.set()

    async def results(
        self, requests: AsyncIterator[pb.ClaimSessionsRequest]
    ) -> AsyncGenerator[list[pb.ClaimResult]]:
        """Carry out the claims of `requests`; yield results, at least one at a time."""
        reading = asyncio.create_task(self._read(requests), name="claims")
        reading.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                results = self._results
                self._results = []
                for portion in portions(results):
                    yield portion
                if self._ended:
                    return
                if reading.done() and not (self._pending or self._results):
                    reading.result()
                    return
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            await self._claims.close()

    async def _read(self, requests: AsyncIterator[pb.ClaimSessionsRequest]) -> None:
        async for request in requests:
            for claim in request.claims:
                await self._slots.acquire()
                self._pending += 1
                self._claims.start(self._claim(claim), f"claim-{claim.internal_id}")

    async def _claim(self, claim: pb.Claim) -> None:
        bind_request(claim.request_id)
        result = pb.ClaimResult(number=claim.number)
        try:
            with self._metrics.rpc("ClaimSession", self._clock):
                check_request(claim)
                wanted = wire.claim_from_proto(claim)
                known = self._known_standby(claim)
                session = await self._warm_pools.claim(claim.internal_id, wanted)
            _succeed(result, known, session)
        except AgentError as error:
            log.debug("claim refused", reason=error.reason.name, error=str(error))
            _fail(result, error)
        except Exception:
            log.exception("a claim failed: internal error")
            _fail(result, AgentError())
        finally:
            self._pending -= 1
            self._slots.release()
        self._results.append(result)
        self._wake.set()

    def _known_standby(self, claim: pb.Claim) -> Session | None:
        """Return the standby to claim, if its last report is the one that the caller knows."""
        standby = self._warm_pools.standby(claim.internal_id)
        if standby is None or standby.sequence != claim.known_sequence:
            return None
        return standby if claim.known_incarnation == self._feed.incarnation else None


def _succeed(result: pb.ClaimResult, known: Session | None, session: Session) -> None:
    claimed = None if known is None else wire.claimed_to_proto(known, session)
    if claimed is None:
        result.session.CopyFrom(wire.session_to_proto(session))
    else:
        result.claimed.CopyFrom(claimed)


def _fail(result: pb.ClaimResult, error: AgentError) -> None:
    result.reason = ERROR_REASONS[error.reason]
    result.error = str(error)[:MAX_SENTENCE]
