"""Reading a request's body into a model: closed, strict, every violation at once."""

from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from controlplane.api.json_reader import read_json
from controlplane.errors import InvalidRequestError, Violation

MAX_BODY = 1024 * 1024
_Body = TypeVar("_Body", bound="Body")


class Body(BaseModel):
    """A JSON object without unknown properties and without conversion between types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


async def read_body(request: web.Request, model: type[_Body]) -> _Body:
    """Read and validate.

    Raises:
        InvalidRequestError: The body does not fit; carries every violation.
        web.HTTPRequestEntityTooLarge: It is larger than `MAX_BODY`.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _invalid("Content-Encoding is not accepted")
    body = await request.read()
    try:
        return model.model_validate(read_json(body))
    except ValidationError as error:
        raise InvalidRequestError(violations_of(error)) from None
    except ValueError as error:
        raise _invalid(str(error)) from None


def violations_of(error: ValidationError) -> tuple[Violation, ...]:
    """Translate pydantic's errors: `("ports", 0, "host")` is `ports[0].host`."""
    return tuple(
        Violation(_path(details["loc"]), _description(details["msg"]))
        for details in error.errors(include_url=False, include_input=False, include_context=False)
    )


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if part == "[key]":  # pydantic's mark for a bad key; the key itself stands before it
            continue
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path or "body"


def _description(message: str) -> str:
    return message.removeprefix("Value error, ")


def _invalid(description: str) -> InvalidRequestError:
    return InvalidRequestError((Violation("body", description),))
