"""The audit: who changed what, when and from where."""

from typing import Any

from aiohttp import web

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, Paged, operation
from controlplane.api.operations.queries import PageBefore, Query, UpTo1000
from controlplane.api.operations.services import services_of
from controlplane.api.operations.shown import Maybe, Millis, Shown, at
from controlplane.domain.access.audit import AuditFilter
from controlplane.storage.tables.accounting.audit import find


class AuditQuery(Query):
    """The query of GET /operator/audit; what is absent does not filter.

    `kind`: a whole kind or its part before the dot. `before`: that of the previous page.
    """

    account: Text | None = None
    kind: Text | None = None
    object: Text | None = None
    token: Text | None = None
    before: PageBefore | None = None
    limit: UpTo1000 = 100


class AuditEvent(Shown):
    """A change; `time` in milliseconds since the epoch.

    `token`: id of the token used, or `init`, `controlplane` or an agent's name. `address`: where
    the request came from. `null` if there is none.
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
    """List changes, newest first."""
    same = query.model_dump(exclude={"limit", "token"})
    wanted = AuditFilter(limit=query.limit, actor=query.token, **same)
    page = await services_of(request).store.read(find, wanted)
    return Listing(page.lines, AuditEvent.show, {"before": page.before})
