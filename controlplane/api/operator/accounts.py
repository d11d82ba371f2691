"""Accounts, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.operation import Answer, Listing, one_portion, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.resources.application_bodies import MEBI, NANO
from controlplane.domain.names import MAX_NAME, NAME_PATTERN, NAME_RULE, is_name
from controlplane.domain.quotas import UNLIMITED, Quota
from controlplane.storage.tables.accounts import Account
from tiltyard.runtime.clock import to_ms


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(NAME_RULE)
    return text


class QuotaBody(Body):
    """What the live sessions of an account may hold: cores, MiB; absent or `null` is no limit."""

    sessions: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    cpu: Annotated[float, Field(ge=0, le=1_000_000_000)] | None = None
    ram: Annotated[float, Field(ge=0, le=1_000_000_000_000)] | None = None

    def quota(self) -> Quota:
        """Translate into whole units."""
        return Quota(
            self.sessions,
            None if self.cpu is None else round(self.cpu * NANO),
            None if self.ram is None else round(self.ram * MEBI),
        )


class AccountBody(Body):
    """The body of POST /operator/account."""

    name: Annotated[
        str,
        Field(max_length=MAX_NAME, json_schema_extra={"pattern": f"^{NAME_PATTERN}$"}),
        AfterValidator(_name),
    ]
    quota: QuotaBody | None = None


class AccountEditBody(Body):
    """The body of PUT /operator/account/{account}."""

    quota: QuotaBody


class CreatedAccount(TypedDict):
    """A new account with its first token, which is shown this once and stored nowhere.

    `id` is that of the token.
    """

    name: str
    id: str
    token: str


class ListedQuota(TypedDict):
    """What live sessions of an account may hold, and its pools with them; `null` is no limit."""

    sessions: int | None
    cpu: float | None
    ram: float | None


class ListedUsage(TypedDict):
    """What live sessions and, of cores and memory, the warm pools of an account hold."""

    sessions: int
    cpu: float
    ram: float


class ListedAccount(TypedDict):
    """An account; `created` in milliseconds since the epoch."""

    name: str
    created: int
    quota: ListedQuota
    usage: ListedUsage


class Accounts(TypedDict):
    """All accounts, by name."""

    accounts: list[ListedAccount]


@operation()
async def list_accounts(request: web.Request) -> Listing[Accounts]:
    """List all accounts with their quotas and what their live sessions hold."""
    accounts = await services_of(request).account_admin.all()
    return Listing("accounts", one_portion(accounts), _listed)


@operation(201)
async def create_account(request: web.Request, body: AccountBody) -> Answer[CreatedAccount]:
    """Make an account.

    The answer has its first token, with all scopes of an account.
    """
    quota = body.quota.quota() if body.quota else UNLIMITED
    admin = services_of(request).account_admin
    token = await admin.create(caller_of(request), body.name, quota)
    return Answer({"name": body.name, "id": token.token_id, "token": token.text})


@operation()
async def edit_account(request: web.Request, body: AccountEditBody) -> None:
    """Replace the quota of an account.

    What runs goes on, also above a lower quota; the next start is refused.
    """
    admin, name = services_of(request).account_admin, request.match_info["account"]
    await admin.replace_quota(caller_of(request), name, body.quota.quota())


@operation()
async def remove_account(request: web.Request) -> None:
    """Remove an account with its tokens, applications, tags, warm pools and ended sessions.

    Its tokens end at once. An account of which a session lives is not removed.
    """
    admin = services_of(request).account_admin
    await admin.remove(caller_of(request), request.match_info["account"])


def _listed(account: Account) -> ListedAccount:
    quota, usage = account.quota, account.usage
    return {
        "name": account.name,
        "created": to_ms(account.created),
        "quota": {
            "sessions": quota.sessions,
            "cpu": None if quota.nano_cpus is None else quota.nano_cpus / NANO,
            "ram": None if quota.memory_bytes is None else quota.memory_bytes / MEBI,
        },
        "usage": {
            "sessions": usage.sessions,
            "cpu": usage.nano_cpus / NANO,
            "ram": usage.memory_bytes / MEBI,
        },
    }
