"""POST /token."""

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from controlplane.api.bodies import Body
from controlplane.api.fields import Duration, no_control_characters
from controlplane.api.operation import Answer, operation
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


class MadeToken(TypedDict):
    """A new token; its text is shown this once and stored nowhere."""

    token: str


@operation(201)
async def make_token(request: web.Request, body: TokenBody) -> Answer[MadeToken]:
    """Make a token of the caller's account.

    It never has more scopes than the caller's token, nor lives longer.
    """
    token = await services_of(request).delegation.make(caller_of(request), body.delegated())
    return Answer({"token": token}, headers={"Cache-Control": "no-store"})
