"""Authorises callers, and maps error reasons to gRPC statuses."""

import functools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message

from agent.domain.errors import AgentError, InvalidArgumentError
from tiltyard.agent.checked import OutOfBoundsError, check
from tiltyard.contract import ERROR_REASON_KEY, REQUEST_KEY, ErrorReason
from tiltyard.runtime.logging.events import bind, get_logger

log = get_logger(__name__)

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

GRPC_CODES: dict[ErrorReason, grpc.StatusCode] = {
    ErrorReason.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorReason.SESSION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.SPEC_CONFLICT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorReason.SESSION_STOPPED: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.SESSION_LIVE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.NO_CAPACITY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.NO_FREE_PORT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.PORT_TAKEN: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.PORT_OUT_OF_RANGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.START_QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.NOT_RECONCILED: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.DRAINING: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.IMAGE_MISSING: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.IMAGE_CANNOT_RUN: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.IMAGE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.IMAGE_IN_USE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.REGISTRY_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.REGISTRY_TIMEOUT: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.ENGINE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.ENGINE_TIMEOUT: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.ENGINE_ERROR: grpc.StatusCode.INTERNAL,
    ErrorReason.CANNOT_KILL: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.CONTAINER_GONE: grpc.StatusCode.NOT_FOUND,
    ErrorReason.PATH_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.ARTIFACT_TOO_LARGE: grpc.StatusCode.OUT_OF_RANGE,
    ErrorReason.LOG_GONE: grpc.StatusCode.NOT_FOUND,
    ErrorReason.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.STANDBY_NOT_CLAIMABLE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.STALE_REVISION: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorReason.INTERNAL: grpc.StatusCode.INTERNAL,
    ErrorReason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}

CALLER_URI = b"tiltyard://controlplane"

Context = grpc.aio.ServicerContext[Any, Any]


async def abort(context: Context, error: AgentError) -> NoReturn:
    """Abort a call with an error's status and reason."""
    await context.abort(
        GRPC_CODES[error.reason],
        str(error),
        trailing_metadata=((ERROR_REASON_KEY, error.reason.name),),
    )


async def _admit(context: Context) -> None:
    """Abort a call over the network that is not from the control plane.

    The handshake is not sufficient: the authority signs certificates of agents as well.
    """
    names = context.auth_context().get("peer_uri", [])
    if list(names) != [CALLER_URI] and not context.peer().startswith("unix:"):
        log.warning("call refused", address=context.peer(), name=names)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the control plane may call")


def bind_request(sent: str | bytes) -> None:
    """Add the id of the caller's request to the log lines of this task, if it is one."""
    if isinstance(sent, str) and _UUID.fullmatch(sent):
        bind(request=sent)


def check_request(request: Message) -> None:
    """Check a request against the bounds of the contract; InvalidArgumentError if beyond them."""
    try:
        check(request)
    except OutOfBoundsError as error:
        log.warning("request refused", error=str(error))
        raise InvalidArgumentError(error.field, "it is out of bounds") from None


@asynccontextmanager
async def _call(context: Context, method: str) -> AsyncGenerator[None]:
    """Convert errors of a handler to statuses; unexpected ones are logged, not revealed."""
    bind_request(dict(context.invocation_metadata() or ()).get(REQUEST_KEY, ""))
    await _admit(context)
    try:
        yield
    except AgentError as error:
        log.debug("call refused", method=method, reason=error.reason.name, error=str(error))
        await abort(context, error)
    except Exception:
        log.exception("call failed: internal error", method=method)
        await abort(context, AgentError())


def answers(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Authorise the caller of a unary handler, and count its calls."""

    @functools.wraps(handler)
    async def answer(self: Any, request: Any, context: Context) -> Any:
        async with _call(context, handler.__name__):
            with self.metrics.rpc(handler.__name__, self.clock):
                check_request(request)
                return await handler(self, request, context)

    return answer


def streams(handler: Callable[..., AsyncGenerator[Any]]) -> Callable[..., AsyncGenerator[Any]]:
    """Authorise the caller of a streaming handler; close the handler when the caller leaves."""

    @functools.wraps(handler)
    async def answer(self: Any, request: Any, context: Context) -> AsyncGenerator[Any]:
        async with _call(context, handler.__name__):
            with self.metrics.stream(handler.__name__):
                if isinstance(request, Message):  # a stream of claims is checked where it is read
                    check_request(request)
                async with aclosing(handler(self, request, context)) as messages:
                    async for message in messages:
                        yield message

    return answer
