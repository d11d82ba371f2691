"""Accounts, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Cores, Mebibytes, Millis, Shown, at
from controlplane.domain.access.quotas import UNLIMITED, Quota
from controlplane.domain.names import MAX_NAME, NAME_PATTERN
from controlplane.storage.tables.access.accounts import find
from tiltyard.contract import MEBI, NANO


class QuotaBody(Body):
    """Limits of live sessions: cores, MiB; absent or `null` is no limit."""

    sessions: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    cpu: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = None
    ram: Annotated[float, Field(ge=0, le=1_000_000_000_000)] | None = None

    def quota(self) -> Quota:
        """Convert to billionths of a core and bytes."""
        return Quota(
            self.sessions,
            None if self.cpu is None else round(self.cpu * NANO),
            None if self.ram is None else round(self.ram * MEBI),
        )


class AccountBody(Body):
    """The body of POST /operator/account."""

    name: Annotated[str, Field(max_length=MAX_NAME, pattern=f"^{NAME_PATTERN}$")]
    quota: QuotaBody | None = None


class AccountEditBody(Body):
    """The body of PUT /operator/account/{account}."""

    quota: QuotaBody


class CreatedAccount(TypedDict):
    """A new account with its first token, shown only now; `id` is the token's."""

    name: str
    id: str
    token: str


class ListedQuota(Shown):
    """Limits of live sessions and warm pools of an account; `null` is no limit."""

    sessions: int | None
    cpu: Cores | None = at("nano_cpus")
    ram: Mebibytes | None = at("memory_bytes")


class ListedUsage(Shown):
    """Usage of live sessions; cores and memory include warm pools."""

    sessions: int
    cpu: Cores = at("nano_cpus")
    ram: Mebibytes = at("memory_bytes")


class ListedAccount(Shown):
    """An account; `created` in milliseconds since the epoch."""

    name: str
    created: Millis
    quota: ListedQuota
    usage: ListedUsage


@operation(key="accounts")
async def list_accounts(request: web.Request) -> Listing[ListedAccount]:
    """List all accounts with their quotas and usage."""
    return Listing(await services_of(request).store.read(find), ListedAccount.show)


@operation(201)
async def create_account(request: web.Request, body: AccountBody) -> Answer[CreatedAccount]:
    """Create an account. The answer has its first token, with all scopes of an account."""
    quota = body.quota.quota() if body.quota else UNLIMITED
    admin = services_of(request).account_admin
    token = await admin.create_account(caller_of(request), body.name, quota)
    return Answer({"name": body.name, "id": token.token_id, "token": token.text})


@operation()
async def edit_account(request: web.Request, body: AccountEditBody) -> None:
    """Replace the quota of an account.

    Sessions above a lower quota keep running; the next start is refused.
    """
    admin = services_of(request).account_admin
    name = request.match_info["account"]
    await admin.replace_quota(caller_of(request), name, body.quota.quota())


@operation()
async def remove_account(request: web.Request) -> None:
    """Remove an account with its tokens, applications, tags, warm pools and ended sessions.

    Its tokens end at once. An account with a live session is not removed.
    """
    admin = services_of(request).account_admin
    await admin.remove_account(caller_of(request), request.match_info["account"])
