"""Plans of starts: the application, tag and ports of a request."""

from controlplane.applications.applications import Applications
from controlplane.applications.tags import Tags
from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import NotFoundError
from controlplane.sessions.claim import Claims
from controlplane.sessions.start_request import Plan, StartRequest, requested_ports


class Plans:
    """Looks up the application and the tag that a request names."""

    def __init__(self, applications: Applications, tags: Tags, claims: Claims) -> None:
        self._applications = applications
        self._tags = tags
        self._claims = claims

    async def prepare(self, caller: Caller, request: StartRequest, deadline: float) -> Plan:
        """Look up the application and choose the tag of a start.

        Raises:
            NotFoundError: Application, region or tag.
            HostsNotReportedError: Only hosts that have not reported yet may have the tag.
            InvalidRequestError: A pin is invalid.
        """
        application, tags = await self._applications.startable(caller, request.image)
        ports = requested_ports(application, request.pins)
        if request.location not in application.regions:
            raise NotFoundError("region", request.location)
        tag, no_tag = await self._tags.choose_tag(
            application,
            tags,
            request.location,
            request.version,
            is_served=lambda: self._claims.may_serve(application, request),
            deadline=deadline,
        )
        return Plan(request, application, tag, ports, no_tag)
