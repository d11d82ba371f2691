"""Claims of standbys on one host over one stream: those that wait go in one message."""

import asyncio
import itertools
from contextlib import suppress
from typing import TypeAlias

import grpc

from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError
from tiltyard.agent.checked import OutOfBoundsError, check
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc
from tiltyard.agent.wire import ERROR_REASONS, portions
from tiltyard.runtime.logging.events import bound
from tiltyard.runtime.tasks import TaskOwner

_REASONS = {value: reason for reason, value in ERROR_REASONS.items()}

_Result = tuple[agent_pb2.ClaimResult, str]
_Call: TypeAlias = (
    "grpc.aio.StreamStreamCall[agent_pb2.ClaimSessionsRequest, agent_pb2.ClaimSessionsResponse]"
)


class ClaimStream:
    """Sends claims over a stream, which is opened by the first claim after it broke."""

    def __init__(
        self, stub: "agent_pb2_grpc.AgentServiceAsyncStub", tasks: TaskOwner[None]
    ) -> None:
        """`tasks` gets the stream's task."""
        self._stub = stub
        self._tasks = tasks
        self._numbers = itertools.count(1)
        self._unsent: list[agent_pb2.Claim] = []
        self._wake = asyncio.Event()
        self._results: dict[int, asyncio.Future[_Result]] = {}
        self._is_open = False

    async def claim(self, claim: agent_pb2.Claim, timeout: float) -> _Result:
        """Send a claim; return its successful result and the agent's incarnation.

        Raises:
            AgentRefusedError: The agent answered with an error.
            AgentUnavailableError: It did not answer in time.
            grpc.aio.AioRpcError: The stream broke.
            OutOfBoundsError: The agent sent what no honest agent sends.
        """
        claim.number = number = next(self._numbers)
        claim.request_id = bound("request")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_Result] = loop.create_future()
        self._results[number] = result
        deadline = loop.call_later(timeout, _expire, result)
        self._unsent.append(claim)
        self._wake.set()
        if not self._is_open:
            self._is_open = True
            self._tasks.start(self._run(), "claims")
        try:
            return await result
        finally:
            deadline.cancel()
            self._results.pop(number, None)

    async def _run(self) -> None:
        error: Exception = AgentUnavailableError("the agent ended the stream of claims")
        call = self._stub.ClaimSessions()
        writing = asyncio.create_task(self._write(call), name="claims to send")
        try:
            async for response in call:
                check(response)
                for result in response.results:
                    self._resolve(result, response.incarnation)
        except (grpc.aio.AioRpcError, OutOfBoundsError) as failure:
            error = failure
        finally:
            self._is_open = False
            self._unsent.clear()
            for waiting in self._results.values():
                if not waiting.done():
                    waiting.set_exception(error)
            call.cancel()
            writing.cancel()
            await asyncio.wait({writing})

    async def _write(self, call: _Call) -> None:
        # How the stream broke is known to its reader.
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                claims = self._unsent
                self._unsent = []
                for portion in portions(claims):
                    await call.write(agent_pb2.ClaimSessionsRequest(claims=portion))

    def _resolve(self, result: agent_pb2.ClaimResult, incarnation: str) -> None:
        waiting = self._results.get(result.number)
        if waiting is None or waiting.done():
            return
        if result.HasField("claimed") or result.HasField("session"):
            waiting.set_result((result, incarnation))
        elif (reason := _REASONS.get(result.reason)) is not None:
            waiting.set_exception(AgentRefusedError(reason, result.error))
        else:
            waiting.set_exception(AgentUnavailableError(result.error))


def _expire(result: asyncio.Future[_Result]) -> None:
    """Fail a claim that its agent has not answered."""
    if not result.done():
        result.set_exception(AgentUnavailableError("the claim was not answered in time"))
