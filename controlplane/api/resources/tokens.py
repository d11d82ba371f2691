"""POST /token."""

from collections.abc import Iterable
from typing import Annotated

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import NO_CONTROLS, Duration
from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.domain.access.tokens import Scope, TokenRequest
from controlplane.domain.durations import parse_duration
from controlplane.domain.errors import BadRequestError

TokenName = Annotated[str, Field(min_length=1, max_length=128, pattern=NO_CONTROLS)]
Scopes = Annotated[list[Annotated[Scope, Field(strict=False)]], Field(max_length=100)]


class TokenBody(Body):
    """The body of POST /token."""

    max_bytes = 64 * 1024
    misfit = BadRequestError

    name: TokenName
    scopes: Scopes
    expires_after: Duration | None = None


def delegated(name: str, scopes: Iterable[Scope], expires_after: str | None) -> TokenRequest:
    """Convert the fields of a request."""
    return TokenRequest(
        name=name,
        scopes=frozenset(scopes),
        lifetime=None if expires_after is None else parse_duration(expires_after),
    )


class MadeToken(TypedDict):
    """A new token; its text is shown only now."""

    token: str


@operation(201)
async def make_token(request: web.Request, body: TokenBody) -> Answer[MadeToken]:
    """Create a token of the caller's account.

    It never has more scopes than the caller's token, nor lives longer.
    """
    wanted = delegated(body.name, body.scopes, body.expires_after)
    token = await services_of(request).delegation.make(caller_of(request), wanted)
    return Answer({"token": token.text})
