"""Answers of the engine: their bodies, and the errors of reading them."""

import contextlib
import json
from collections.abc import Callable, Iterator

import aiohttp

from agent.docker.errors import Call, error_of_connection, timed_out
from agent.domain.errors import EngineError, EngineTimeoutError, RegistryTimeoutError

LARGEST_ANSWER = 2**28  # Bytes; the list of 100,000 images has about 100 MB
_MAX_ERROR_BODY = 2**16


@contextlib.contextmanager
def translated(call: Call, forget: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Convert exceptions of a call; call `forget` if the connection is lost."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        if not timed_out(error):
            forget()
        late = timed_out(error) and not isinstance(error, aiohttp.ConnectionTimeoutError)
        if call.name == "pull" and late:
            raise RegistryTimeoutError(call.image) from error
        raise error_of_connection(call, error) from error
    except (ValueError, KeyError, TypeError) as error:
        if call.changes:
            raise EngineTimeoutError(call.name) from error  # it may have taken effect
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error


async def body_of(response: aiohttp.ClientResponse) -> bytes:
    """Read the body of an answer; ValueError if it is larger than any list of the engine."""
    body = await _read(response, LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise ValueError("its answer is too large")
    return body


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read a body, or its first bytes."""
    body = bytearray()
    while left := most - len(body):
        piece = await response.content.read(left)  # as much as has arrived
        if not piece:
            break
        body += piece
    return bytes(body)


async def message_of(response: aiohttp.ClientResponse) -> str:
    """Read the engine's message of an error."""
    body = await _read(response, _MAX_ERROR_BODY)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["message"])
    return body.decode(errors="replace")
