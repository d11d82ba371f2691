"""POST /token."""

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field

from controlplane.api.bodies import Body, read_body
from controlplane.api.fields import Duration, no_control_characters
from controlplane.api.services import caller_of, services_of
from controlplane.delegation import Delegated
from controlplane.durations import parse_duration
from controlplane.errors import BadRequestError
from controlplane.tokens import Scope


def _scope(text: str) -> str:
    if text not in set(Scope):
        raise ValueError("is not a scope")
    return text


_Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(no_control_characters)]


class TokenBody(Body):
    """The body of POST /token."""

    max_bytes = 64 * 1024
    misfit = BadRequestError

    name: _Name
    scopes: list[Annotated[str, AfterValidator(_scope)]]
    expires_after: Duration | None = None

    def delegated(self) -> Delegated:
        """Translate into the use case's terms."""
        return Delegated(
            name=self.name,
            scopes=frozenset(Scope(scope) for scope in self.scopes),
            lifetime=None if self.expires_after is None else parse_duration(self.expires_after),
        )


async def make_token(request: web.Request) -> web.Response:
    """POST /token."""
    body = await read_body(request, TokenBody)
    token = await services_of(request).delegation.make(caller_of(request), body.delegated())
    headers = {"Cache-Control": "no-store"}
    return web.json_response({"token": token}, status=201, headers=headers)
