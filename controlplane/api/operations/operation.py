"""Routes, and what a handler takes and answers, read off its signature.

A handler is `async def name(request, body: SomeBody, query: SomeQuery) -> Answer[SomeShape]`; it
takes `body` and `query` only where the call has them, and gets them read and checked. `None` in
place of an answer is a 204. Its docstring is the call's summary and description.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from aiohttp import web
from pydantic import BaseModel, create_model
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body, read_body, receive_body
from controlplane.api.operations.queries import Query, read_query
from controlplane.domain.tokens import Scope
from controlplane.http.errors import break_off
from controlplane.http.request_slots import release_slot

JSON = "application/json"
ANYWHERE = frozenset({400, 503})
"""Errors of any call: bytes that are no request, or too many of them; a database out of order."""

AT_ONCE = 20
"""Entries of a list that are encoded at once: some 10 ms, where they are the largest."""

CHUNK = 64 * 1024
"""Bytes of a list that are sent at once, or more where its entries are large."""

READER_WAIT = 1.0
"""Seconds for which a list waits for its reader within its slot."""

_Shape = TypeVar("_Shape")
_Item = TypeVar("_Item")
_Handle = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answer(Generic[_Shape]):
    """What a handler answers as JSON; `_Shape` is a TypedDict or Shown, the answer's schema."""

    content: _Shape
    headers: Mapping[str, str] = field(default_factory=dict)


def _dumped(content: Any) -> Any:
    return content.model_dump(mode="json") if isinstance(content, BaseModel) else content


async def _whole(items: Sequence[_Item]) -> AsyncGenerator[Sequence[_Item], None]:
    yield items


class Paged(TypedDict):
    """What a page of a list has beside it: `before` asks for the next, `null`: there is none."""

    before: int | None


@dataclass(frozen=True, slots=True)
class Listing(Generic[_Shape]):
    """A list that may be long, made and sent a portion after the other; `_Shape` is an entry's.

    `rest` are properties beside the list.
    """

    items: Sequence[Any] | AsyncGenerator[Sequence[Any], None]
    show: Callable[[Any], Any]
    rest: Mapping[str, Any] = field(default_factory=dict)

    async def chunks(self, key: str) -> AsyncGenerator[bytes, None]:
        """Encode some entries at a time, and let the event loop run in between."""
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
    """A handler with what it takes and answers.

    `shape` is the model of the answer; None where there is no body, or it is no JSON. `key` is
    what a list stands under.
    `headers` are those of its own that the answer always has, with what they say; `at_times` are
    those that it has at times, and `reads` those of the request that change the answer.
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
        """The handler's: the summary, and what is said beyond it."""
        return inspect.getdoc(self.handle) or ""

    async def receive(self, request: web.Request) -> None:
        """Wait for the body of a request, if this call takes one."""
        if self.body is not None:
            await receive_body(request, self.body.max_bytes)

    async def read(self, request: web.Request) -> dict[str, Any]:
        """Read and check the query and the body, as arguments of `run`."""
        taken: dict[str, Any] = {}
        if self.query is not None:
            taken["query"] = read_query(request, self.query)
        if self.body is not None:
            taken["body"] = await read_body(request, self.body)
        return taken

    async def run(self, request: web.Request, taken: Mapping[str, Any]) -> web.StreamResponse:
        """Run the handler and put its answer on the wire."""
        answer = await self.handle(request, **taken)
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, Listing):
            return await _send(request, answer, self.key)
        if answer is None:
            return web.Response(status=self.status)
        return web.json_response(
            _dumped(answer.content), status=self.status, headers=answer.headers
        )


async def _send(request: web.Request, listing: Listing[Any], key: str) -> web.StreamResponse:
    """Send a list, in one piece when it is short: then a failure can still be answered."""
    async with aclosing(listing.chunks(key)) as chunks:
        pieces = [await anext(chunks), await anext(chunks, None), await anext(chunks, None)]
        if pieces[2] is None:
            body = b"".join(piece for piece in pieces if piece is not None)
            return web.Response(body=body, content_type=JSON, charset="utf-8")
        response = web.StreamResponse(headers={"Content-Type": f"{JSON}; charset=utf-8"})
        await response.prepare(request)
        try:
            for piece in pieces:
                await _write(response, piece or b"")
            async for chunk in chunks:
                await _write(response, chunk)
            await response.write_eof()
        except Exception:  # noqa: BLE001  # the header is out
            break_off(request, "a list")
    return response


async def _write(response: web.StreamResponse, chunk: bytes) -> None:
    """Send a part of a list; the slot of a request whose reader is slow goes to the next."""
    leaving = asyncio.get_running_loop().call_later(READER_WAIT, release_slot)
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
    **headers: Mapping[str, str],
) -> Callable[[_Handle], Operation]:
    """Make an operation of a handler; `media_types` is for one that answers something else.

    A list stands under `key`, with the properties of `beside`. `headers` are the fields `headers`,
    `at_times` and `reads` of the operation.
    """

    def decorate(handle: _Handle) -> Operation:
        hints = get_type_hints(handle)
        returned = hints["return"]
        empty = returned is type(None)
        shape = get_args(returned)[0] if get_origin(returned) in {Answer, Listing} else None
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
    """One row of the table of routes; `scope` is None where no token is needed.

    `own_errors` are those that its token, body or query do not bring along.
    """

    method: str
    path: str
    scope: Scope | None
    handler: Operation
    own_errors: AbstractSet[int] = frozenset()

    @property
    def errors(self) -> AbstractSet[int]:
        """The errors that the call documents. Any call may be answered `ANYWHERE`."""
        return (
            self.own_errors
            | ({401, 403} if self.scope else set())
            | ({413, 422} if self.handler.body else set())
            | ({422} if self.handler.query else set())
        )
