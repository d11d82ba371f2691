"""Tokens of every account, for operators."""

from aiohttp import web
from pydantic import ValidationInfo, field_validator
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Duration, Name
from controlplane.api.operations.operation import Answer, Listing, one_portion, operation
from controlplane.api.operations.queries import Flag, Query
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.resources.tokens import Scopes, TokenBody, TokenName, delegated
from controlplane.catalog.delegation import Delegated
from controlplane.domain.tokens import ACCOUNT_SCOPES, OPERATOR_SCOPES
from controlplane.storage.tables.tokens import Token
from tiltyard.runtime.clock import to_ms


class TokensQuery(Query):
    """The query of GET /operator/token; an empty `account` means the operators' own tokens."""

    account: str | None = None
    all: Flag = False


class OperatorTokenBody(Body):
    """The body of POST /operator/token; without `account` it asks for an operator's token."""

    max_bytes = TokenBody.max_bytes
    misfit = TokenBody.misfit

    account: Name | None = None
    name: TokenName
    scopes: Scopes
    expires_after: Duration | None = None

    @field_validator("scopes")
    @classmethod
    def _are_of_its_kind(cls, scopes: list[str], info: ValidationInfo) -> list[str]:
        if "account" not in info.data:  # it does not fit itself
            return scopes
        allowed = OPERATOR_SCOPES if info.data["account"] is None else ACCOUNT_SCOPES
        wrong = sorted(set(scopes) - allowed)
        if wrong:
            whose = "an operator's" if info.data["account"] is None else "an account's"
            raise ValueError(f"{whose} token cannot have {', '.join(wrong)}")
        return scopes

    def delegated(self) -> Delegated:
        """Translate into the use case's terms."""
        return delegated(self.name, self.scopes, self.expires_after)


class CreatedToken(TypedDict):
    """A new token; its text is shown this once and stored nowhere."""

    id: str
    token: str


class ListedToken(TypedDict):
    """A token without its text; times in milliseconds since the epoch, `null` where none."""

    id: str
    account: str | None
    name: str
    scopes: list[str]
    parent: str | None
    created: int
    expires: int | None
    lastUsed: int | None
    lastUsedFrom: str | None
    revoked: int | None


class Tokens(TypedDict):
    """The tokens that match, in the order of their making."""

    tokens: list[ListedToken]


class RevokedTokens(TypedDict):
    """The ids of the tokens that the call ended; empty when they had ended before."""

    revoked: list[str]


@operation()
async def list_tokens(request: web.Request, query: TokensQuery) -> Listing[Tokens]:
    """List tokens: those that are good, or `all` that are known."""
    tokens = await services_of(request).delegation.all(query.account, ended_too=query.all)
    return Listing("tokens", one_portion(tokens), _listed)


@operation(201)
async def create_token(request: web.Request, body: OperatorTokenBody) -> Answer[CreatedToken]:
    """Make a token of an account, or an operator's.

    That of an account is no child of the caller's token: it stays when that is revoked. That of
    an operator is one, has no more scopes and lives no longer.
    """
    delegation, caller, wanted = (
        services_of(request).delegation,
        caller_of(request),
        body.delegated(),
    )
    if body.account is None:
        token = await delegation.make(caller, wanted)
    else:
        token = await delegation.make_for(caller, body.account, wanted)
    return Answer({"id": token.token_id, "token": token.text})


@operation()
async def revoke_token(request: web.Request) -> Answer[RevokedTokens]:
    """Revoke a token and all that were made from it, at once.

    Idempotent. Their streams are broken off.
    """
    delegation = services_of(request).delegation
    return Answer(
        {"revoked": await delegation.revoke(caller_of(request), request.match_info["id"])}
    )


def _listed(token: Token) -> ListedToken:
    return {
        "id": token.id,
        "account": token.account,
        "name": token.name,
        "scopes": list(token.scopes),
        "parent": token.parent,
        "created": to_ms(token.created),
        "expires": to_ms(token.expire),
        "lastUsed": to_ms(token.last_used),
        "lastUsedFrom": token.last_used_address,
        "revoked": to_ms(token.revoked),
    }
