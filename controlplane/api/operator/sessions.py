"""Sessions of all accounts, for operators."""

from functools import partial

from aiohttp import web

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, Paged, operation
from controlplane.api.operations.queries import Flag, PageBefore, Query, UpTo1000
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.resources.session_bodies import ListedSession, listed_session
from controlplane.domain.sessions.sessions import PageFilter
from controlplane.fleet.fleet import Fleet
from controlplane.sessions.sessions import ShownSession
from controlplane.storage.tables.sessions.session_lists import find_page
from tiltyard.runtime.clock import to_ms


class AllSessionsQuery(Query):
    """The query of GET /operator/session; what is absent does not filter."""

    account: Text | None = None
    agent: Text | None = None
    location: Text | None = None
    image: Text | None = None
    all: Flag = False
    before: PageBefore | None = None
    limit: UpTo1000 = 100


class AccountsSession(ListedSession):
    """A session with its account and the agent that it was last tried on.

    `ready`: when players could first reach it, in milliseconds since the epoch, or `null`.
    """

    account: str
    agent: str | None
    ready: int | None


@operation(key="sessions", beside=Paged)
async def list_all_sessions(
    request: web.Request, query: AllSessionsQuery
) -> Listing[AccountsSession]:
    """List the sessions of all accounts: those that have not ended, or `all` known ones."""
    services = services_of(request)
    same = query.model_dump(exclude={"all", "image"})
    wanted = PageFilter(ended_too=query.all, application=query.image, **same)
    found, before = await services.store.read(find_page, wanted)
    show = partial(_listed, fleet=services.fleet)
    return Listing(list(map(services.sessions.shown, found)), show, {"before": before})


@operation()
async def stop_any_session(request: web.Request) -> None:
    """Stop a session of an account: SIGTERM, then SIGKILL after the host's grace period.

    The answer comes when the container has ended, within 12 s.
    """
    account = request.match_info["account"]
    session_id = request.match_info["id"]
    caller = caller_of(request)._replace(account=account)  # the audit names the operator
    await services_of(request).sessions.stop(caller, session_id)


def _listed(shown: ShownSession, fleet: Fleet) -> AccountsSession:
    session = shown.session
    reported = fleet.session(session.agent or "", session.internal_id or "")
    ready = reported.ready_time if reported is not None and reported.is_ready else None
    return {
        **listed_session(shown),
        "account": session.account,
        "agent": session.agent,
        "ready": to_ms(ready),
    }
