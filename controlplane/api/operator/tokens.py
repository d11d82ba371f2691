"""Tokens of all accounts, for operators."""

from aiohttp import web
from pydantic import ValidationInfo, field_validator
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Duration, Name
from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.queries import Flag, Query
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Millis, Shown, at
from controlplane.api.resources.tokens import Scopes, TokenBody, TokenName, delegated
from controlplane.domain.access.tokens import ACCOUNT_SCOPES, OPERATOR_SCOPES, Scope


class TokensQuery(Query):
    """The query of GET /operator/token; an empty `account` means the operators' own tokens."""

    account: str | None = None
    all: Flag = False


class OperatorTokenBody(Body):
    """The body of POST /operator/token; without `account` for an operator's token."""

    max_bytes = TokenBody.max_bytes
    misfit = TokenBody.misfit

    account: Name | None = None
    name: TokenName
    scopes: Scopes
    expires_after: Duration | None = None

    @field_validator("scopes")
    @classmethod
    def _are_of_its_kind(cls, scopes: list[Scope], info: ValidationInfo) -> list[Scope]:
        if "account" not in info.data:  # invalid itself
            return scopes
        allowed = OPERATOR_SCOPES if info.data["account"] is None else ACCOUNT_SCOPES
        wrong = sorted(set(scopes) - allowed)
        if wrong:
            whose = "an operator's" if info.data["account"] is None else "an account's"
            raise ValueError(f"{whose} token cannot have {', '.join(wrong)}")
        return scopes


class CreatedToken(TypedDict):
    """A new token; its text is shown only now."""

    id: str
    token: str


class ListedToken(Shown):
    """A token without its text; times in milliseconds since the epoch, `null` where none."""

    id: str
    account: str | None
    name: str
    scopes: list[str]
    parent: str | None
    created: Millis
    expires: Millis | None = at("expire")
    last_used: Millis | None
    last_used_from: str | None = at("last_used_address")
    revoked: Millis | None


class RevokedTokens(TypedDict):
    """The ids of the tokens that the call revoked; empty if all had ended before."""

    revoked: list[str]


@operation(key="tokens")
async def list_tokens(request: web.Request, query: TokensQuery) -> Listing[ListedToken]:
    """List tokens: the valid ones, or `all` known ones."""
    tokens = await services_of(request).delegation.all(query.account, ended_too=query.all)
    return Listing(tokens, ListedToken.show)


@operation(201)
async def create_token(request: web.Request, body: OperatorTokenBody) -> Answer[CreatedToken]:
    """Create a token of an account, or an operator's.

    An operator's is a child of the caller's token: it has no further scopes, lives no longer and
    is revoked with it. An account's is not.
    """
    delegation = services_of(request).delegation
    caller = caller_of(request)
    wanted = delegated(body.name, body.scopes, body.expires_after)
    token = await delegation.make(caller, wanted, body.account)
    return Answer({"id": token.token_id, "token": token.text})


@operation()
async def revoke_token(request: web.Request) -> Answer[RevokedTokens]:
    """Revoke a token and all that were made from it, at once.

    Idempotent. Their streams are closed.
    """
    delegation = services_of(request).delegation
    return Answer(
        {"revoked": await delegation.revoke(caller_of(request), request.match_info["id"])}
    )
