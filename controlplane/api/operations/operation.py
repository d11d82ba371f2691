"""Routes, and operations that are described by their handlers' signatures.

A handler is `async def name(request, body: SomeBody, query: SomeQuery) -> Answer[SomeShape]`;
`body` and `query` are optional and arrive validated. A handler that returns `None` answers 204.
Its docstring is the call's summary and description.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from aiohttp import web
from pydantic import BaseModel, create_model
from typing_extensions import TypedDict

from controlplane.admission.request_slots import release_request_slot
from controlplane.api.operations.bodies import Body, read_body
from controlplane.api.operations.queries import Query, read_query
from controlplane.domain.access.tokens import Scope
from controlplane.http.errors import break_off
from controlplane.http.messages import JSON, Reply, Request
from tiltyard.records import record

ANYWHERE = frozenset({400, 503})
"""Errors of any call: malformed HTTP, too many requests, database failures."""

AT_ONCE = 20  # List entries encoded between two yields to the event loop: at most about 10 ms
CHUNK = 64 * 1024  # Bytes of a list after which they are sent
READER_WAIT = 1.0  # Seconds that a list waits for its reader before it releases its request slot

_Shape = TypeVar("_Shape")
_Item = TypeVar("_Item")
_Handle = Callable[..., Awaitable[Any]]


@record(frozen=True, slots=True)
class Answer(Generic[_Shape]):
    """A JSON response, possibly encoded; `_Shape`, a TypedDict or Shown, is its schema."""

    content: _Shape | bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(content: Any) -> bytes:
    """Encode the content of a response as JSON."""
    return json.dumps(_dumped(content)).encode()


def _dumped(content: Any) -> Any:
    return content.model_dump(mode="json") if isinstance(content, BaseModel) else content


async def _whole(items: Sequence[_Item]) -> AsyncGenerator[Sequence[_Item], None]:
    yield items


class Paged(TypedDict):
    """Paging of a list: `before` requests the next page, `null` on the last one."""

    before: int | None


@dataclass(frozen=True, slots=True)
class Listing(Generic[_Shape]):
    """A list sent in portions; `_Shape` is an entry's schema, `rest` other properties."""

    items: Sequence[Any] | AsyncGenerator[Sequence[Any], None]
    show: Callable[[Any], Any]
    rest: Mapping[str, Any] = field(default_factory=dict)

    async def chunks(self, key: str) -> AsyncGenerator[bytes, None]:
        """Encode the list in chunks, yielding to the event loop in between."""
        text = f'{{"{key}": ['
        comma = ""
        items = self.items
        async with aclosing(items if isinstance(items, AsyncGenerator) else _whole(items)) as all_:
            async for portion in all_:
                for first in range(0, len(portion), AT_ONCE):
                    shown = [_dumped(self.show(item)) for item in portion[first : first + AT_ONCE]]
                    text += comma + json.dumps(shown)[1:-1]
                    comma = ", "
                    if len(text) >= CHUNK:
                        yield text.encode()
                        text = ""
                        await asyncio.sleep(0)
                if comma and text:
                    yield text.encode()
                    text = ""
        rest = "".join(
            f", {json.dumps(key)}: {json.dumps(_dumped(each))}" for key, each in self.rest.items()
        )
        yield f"{text}]{rest}}}".encode()


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler with its inputs and its response.

    `shape`: model of the response, None without a JSON body. `key`: property that holds a list.
    Headers with their descriptions: `headers` are always in the response, `at_times` sometimes;
    `reads` are those of the request that change the response.
    """

    handle: _Handle
    key: str
    status: int
    media_types: tuple[str, ...]
    body: type[Body] | None
    query: type[Query] | None
    shape: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    at_times: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The handler's name."""
        return self.handle.__name__

    @property
    def docstring(self) -> str:
        """The handler's docstring: summary and description."""
        return inspect.getdoc(self.handle) or ""

    async def run(self, request: Request) -> web.StreamResponse:
        """Validate the query and the body, run the handler and return its response."""
        taken: dict[str, Any] = {}
        if self.query is not None:
            taken["query"] = read_query(request, self.query)
        if self.body is not None:
            taken["body"] = await read_body(request, self.body)
        answer = await self.handle(request, **taken)
        if isinstance(answer, Answer):
            content = answer.content
            if not isinstance(content, bytes):
                content = encoded(content)
            return Reply(content, self.status, answer.headers)
        if isinstance(answer, Listing):
            return await _send(request, answer, self.key)
        if answer is None:
            return Reply(status=self.status)
        return cast("web.StreamResponse", answer)


async def _send(request: Request, listing: Listing[Any], key: str) -> web.StreamResponse:
    """Send a list; a short one in one piece, so that a failure can still be reported."""
    async with aclosing(listing.chunks(key)) as chunks:
        pieces = [await anext(chunks), await anext(chunks, None), await anext(chunks, None)]
        if pieces[2] is None:
            body = b"".join(piece for piece in pieces if piece is not None)
            return Reply(body)
        response = web.StreamResponse(headers={"Content-Type": f"{JSON}; charset=utf-8"})
        with request.ended_by_disconnect():
            await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            with request.ended_by_disconnect():
                for piece in pieces:
                    await _write(response, piece or b"")
                async for chunk in chunks:
                    await _write(response, chunk)
                await response.write_eof()
        except Exception:  # noqa: BLE001  # headers were sent
            break_off(request, "a list")
    return response


async def _write(response: web.StreamResponse, chunk: bytes) -> None:
    """Send a part of a list; release the request slot if the reader is slow."""
    leaving = asyncio.get_running_loop().call_later(READER_WAIT, release_request_slot)
    try:
        await response.write(chunk)
    finally:
        leaving.cancel()


def operation(
    status: int | None = None,
    *,
    key: str = "",
    beside: type[Any] = object,
    media_types: tuple[str, ...] = (),
    shape: Any = None,
    **headers: Mapping[str, str],
) -> Callable[[_Handle], Operation]:
    """Turn a handler into an operation; `media_types` if it does not return JSON alone.

    `shape` is the model of the JSON if the handler returns other responses as well.
    `key` holds a list, next to the properties of `beside`. `headers` are the fields `headers`,
    `at_times` and `reads` of the operation.
    """
    of_json = shape

    def decorate(handle: _Handle) -> Operation:
        hints = get_type_hints(handle)
        returned = hints["return"]
        empty = returned is type(None)
        shape = of_json
        if get_origin(returned) in {Answer, Listing}:
            shape = get_args(returned)[0]
        if get_origin(returned) is Listing:
            fields: dict[str, Any] = {name: (k, ...) for name, k in get_type_hints(beside).items()}
            fields[key] = (GenericAlias(list, (shape,)), ...)
            summary = (inspect.getdoc(handle) or "").partition("\n\n")[0]
            name = handle.__name__.title().replace("_", "")
            shape = create_model(name, __doc__=summary, **fields)
        return Operation(
            handle=handle,
            key=key,
            status=status or (204 if empty else 200),
            media_types=() if empty else media_types or (JSON,),
            body=hints.get("body"),
            query=hints.get("query"),
            shape=shape,
            **headers,
        )

    return decorate


@dataclass(frozen=True, slots=True)
class Route:
    """A route; without `scope` it needs no token. `own_errors`: beyond scope, body and query.

    `alias_of`: the method that does the same, which some clients cannot send.
    """

    method: str
    path: str
    scope: Scope | None
    handler: Operation
    own_errors: AbstractSet[int] = frozenset()
    alias_of: str = ""

    @property
    def errors(self) -> AbstractSet[int]:
        """Documented error statuses, without `ANYWHERE`."""
        return (
            self.own_errors
            | ({401, 403} if self.scope else set())
            | ({413, 422} if self.handler.body else set())
            | ({422} if self.handler.query else set())
        )
