"""Strict parsing of request bodies; reports all violations at once."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from aiohttp import StreamReader
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from controlplane.domain.errors import BodyTooLargeError, InvalidRequestError, Violation
from controlplane.domain.json_reader import read_json
from controlplane.http.messages import Request

MAX_BODY = 1024 * 1024
MAX_PROPERTIES = 100  # Per object; more than any model has. Each unknown one is a violation.
MAX_FIELD = 256
"""Characters of a violation's field, which may be an unknown property of any length."""
_Body = TypeVar("_Body", bound="Body")


class Body(BaseModel):
    """A JSON object without unknown properties or conversion; `misfit` is the error if invalid."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    max_bytes: ClassVar[int] = MAX_BODY
    misfit: ClassVar[type[InvalidRequestError]] = InvalidRequestError

    @model_validator(mode="before")
    @classmethod
    def _has_few_properties(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > MAX_PROPERTIES:
            raise ValueError(f"must have at most {MAX_PROPERTIES} properties")
        return value


async def read_body(request: Request, model: type[_Body]) -> _Body:
    """Read a body and validate it as `parse_body` does; it is not kept."""
    body = await receive_body(request, model.max_bytes)
    request.received = None
    return parse_body(body, model)


def parse_body(body: bytes, model: type[_Body]) -> _Body:
    """Validate a body; raises `misfit` with all violations."""
    try:
        return model.model_validate(read_json(body))
    except ValidationError as error:
        raise model.misfit(violations_of(error)) from None
    except ValueError as error:
        raise _invalid(str(error)) from None


async def receive_body(
    request: Request, max_bytes: int, hold: Callable[[int], None] = lambda _: None
) -> bytes:
    """Read a body once; check its headers first.

    `hold` is called with the bytes that are about to be in memory, and may raise an error.

    Raises:
        BodyTooLargeError: It is larger than `max_bytes`.
        InvalidRequestError: It has a Content-Encoding.
    """
    if request.received is not None:
        return request.received
    declared = request.content_length or 0
    if declared > max_bytes:
        raise BodyTooLargeError(max_bytes)
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _invalid("Content-Encoding is not accepted")
    hold(declared)
    await request.invite_body()
    received = await _received(request.content, max_bytes, hold)
    if len(received) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    request.received = received
    return received


async def _received(content: StreamReader, max_bytes: int, hold: Callable[[int], None]) -> bytes:
    """Read a body to its end, or until it is longer than `max_bytes`."""
    if content.is_eof():
        return content.read_nowait()
    body = bytearray()
    while len(body) <= max_bytes and (chunk := await content.readany()):
        hold(len(body) + len(chunk))
        body += chunk
    return bytes(body)


def violations_of(error: ValidationError) -> tuple[Violation, ...]:
    """Translate pydantic's errors: `("ports", 0, "host")` is `ports[0].host`."""
    return tuple(
        Violation(_path(details["loc"]), description_of(details["msg"]))
        for details in error.errors(include_url=False, include_input=False, include_context=False)
    )


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if part == "[key]":  # pydantic's mark behind a bad key
            continue
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return shortened(path) or "body"


def shortened(field: str) -> str:
    """Shorten the path of a violation."""
    return field if len(field) <= MAX_FIELD else f"{field[:MAX_FIELD]}…"


def description_of(message: str) -> str:
    """Convert a pydantic message to a violation's description."""
    if message.startswith("Value error, "):
        return message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _invalid(description: str) -> InvalidRequestError:
    return InvalidRequestError((Violation("body", description),))
