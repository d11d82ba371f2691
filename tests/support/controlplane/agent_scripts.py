"""Scripts of the fake agent: what a call does besides, or instead."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc

from tests.support.controlplane.agent_answers import bindings_of
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import ERROR_REASON_KEY

STATUSES = {
    "SESSION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "SPEC_CONFLICT": grpc.StatusCode.INVALID_ARGUMENT,
}
"""Those that contract tests compare with an agent's: the control plane goes by the reason."""
Script = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[object]]


async def refuse(
    context: grpc.aio.ServicerContext[Any, Any], reason: str, text: str = "as scripted"
) -> NoReturn:
    """Abort a call as an agent does, with the reason in the trailing metadata."""
    code = STATUSES.get(reason, grpc.StatusCode.FAILED_PRECONDITION)
    await context.abort(code, text, ((ERROR_REASON_KEY, reason),))


async def known_session(
    sessions: Mapping[str, agent_pb2.Session], request: Any, context: Any
) -> agent_pb2.Session:
    """Return the session that a request names; refuse the call if there is none."""
    if request.internal_id not in sessions:
        await refuse(context, "SESSION_NOT_FOUND")
    return sessions[request.internal_id]


def refusing(reason: str, text: str = "as scripted") -> Script:
    async def script(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await refuse(context, reason, text)

    return script


async def run_script(script: Script | None, request: Any, context: Any) -> None:
    if script is not None:
        await script(request, context)


class RefusedClaimError(Exception):
    """A scripted refusal of one claim of a stream."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = agent_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")
        self.text = text


class ClaimContext:
    """What scripts see of a claim: a refusal ends it, a status without a reason the stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def abort(self, code: Any, text: str = "", trailing_metadata: Any = ()) -> NoReturn:
        reason = dict(trailing_metadata).get(ERROR_REASON_KEY)
        if reason is not None:
            raise RefusedClaimError(reason, text)
        await self._stream.abort(code, text)
        raise AssertionError("abort raises")


class ScriptedCalls:
    """One script per call and moment; None does nothing. Also the calls that keep no state.

    `before_*` runs before the change, `after_start` and `after_claim` between the change and the
    answer, `after_logs` between the lines and the end, `during_pull` between two steps.
    """

    before_start: Script | None = None
    after_start: Script | None = None
    before_stop: Script | None = None
    before_logs: Script | None = None
    after_logs: Script | None = None
    before_report: Script | None = None
    before_bindings: Script | None = None
    before_artifact: Script | None = None
    before_pull: Script | None = None
    during_pull: Script | None = None
    before_drain: Script | None = None
    before_claim: Script | None = None
    after_claim: Script | None = None
    before_order: Script | None = None
    before_shapes: Script | None = None

    def __init__(self) -> None:
        self.sessions: dict[str, agent_pb2.Session] = {}
        self.shape_orders: list[agent_pb2.SetShapesRequest] = []
        self.bound_instead: list[agent_pb2.BoundPort] = []

    async def SetShapes(  # noqa: N802
        self, request: agent_pb2.SetShapesRequest, context: Any
    ) -> agent_pb2.SetShapesResponse:
        await run_script(self.before_shapes, request, context)
        self.shape_orders.append(request)
        return agent_pb2.SetShapesResponse()

    async def GetBindings(  # noqa: N802
        self, request: agent_pb2.GetBindingsRequest, context: Any
    ) -> agent_pb2.GetBindingsResponse:
        await run_script(self.before_bindings, request, context)
        session = await known_session(self.sessions, request, context)
        return bindings_of(session, self.bound_instead)

    async def FetchArtifact(  # noqa: N802
        self, request: agent_pb2.FetchArtifactRequest, context: Any
    ) -> AsyncIterator[agent_pb2.FetchArtifactResponse]:
        await run_script(self.before_artifact, request, context)
        yield agent_pb2.FetchArtifactResponse(data=b"tar of ")
        yield agent_pb2.FetchArtifactResponse(data=request.path.encode())

    async def _refuse_call(self, _: Any, context: Any) -> NoReturn:
        await refuse(context, "UNIMPLEMENTED")

    GetHost: Any = _refuse_call
    ListSessions = ListImages = RenewCertificate = GetHost
