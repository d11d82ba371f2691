"""The audit: who changed what, when and from where."""

from typing import Any

from aiohttp import web

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, Paged, operation
from controlplane.api.operations.queries import PageBefore, Query, UpTo1000
from controlplane.api.operations.services import services_of
from controlplane.api.operations.shown import Maybe, Millis, Shown, at
from controlplane.storage.tables.audit import AuditFilter, find


class AuditQuery(Query):
    """The query of GET /operator/audit; what is absent does not filter.

    `kind` is a whole kind or what stands before its dot. `before` is that of the last page: the
    sequence of its last event.
    """

    account: Text | None = None
    kind: Text | None = None
    object: Text | None = None
    token: Text | None = None
    before: PageBefore | None = None
    limit: UpTo1000 = 100


class AuditEvent(Shown):
    """A change; `time` in milliseconds since the epoch.

    `token` is the id of the token that made it, or `init`, `controlplane` or an agent's name;
    `address` is where its request came from. `null` where there is none.
    """

    sequence: int
    time: Millis
    kind: str
    account: Maybe
    token: str = at("actor")
    address: Maybe
    object: str
    data: dict[str, Any]


@operation(key="events", beside=Paged)
async def list_audit(request: web.Request, query: AuditQuery) -> Listing[AuditEvent]:
    """List what was changed, newest first."""
    same = query.model_dump(exclude={"limit", "token"})
    # One line more shows whether there is a next page.
    wanted = AuditFilter(limit=query.limit + 1, actor=query.token, **same)
    lines = await services_of(request).store.read(find, wanted)
    shown = lines[: query.limit]
    before = shown[-1].sequence if len(lines) > query.limit else None
    return Listing(shown, AuditEvent.show, {"before": before})
