"""The authority that hosts and the control plane know each other by, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Millis, Shown, at
from controlplane.operators.rotation import RotationStatus


class ShownAuthority(Shown):
    """An authority; `fingerprint` is the SHA-256 of its certificate, times are milliseconds."""

    fingerprint: str
    created: Millis = at("begin")
    expires: Millis = at("expire")


class WaitingAgent(Shown):
    """An enrolled agent that is not with the current authority alone, and why."""

    agent: str = at("host.name")
    authority: str | None = at("host.row.authority")
    why: str


class AuthorityStatus(Shown):
    """The authorities, and how far the hosts have moved.

    `current` signs; `former` is trusted as well while hosts move, and null else. Of all `enrolled`
    agents, `moved` are with the current one; `waiting` are at most 100 of the others.
    """

    current: ShownAuthority
    former: ShownAuthority | None
    enrolled: int
    moved: int = 0
    waiting: Annotated[list[WaitingAgent], BeforeValidator(lambda agents: agents[:100])]


class RotateBody(Body):
    """The body of POST /operator/authority/rotate."""

    compromised: bool | None = None


class FinishBody(Body):
    """The body of POST /operator/authority/finish."""

    force: bool | None = None


@operation()
async def get_authority(request: web.Request) -> Answer[AuthorityStatus]:
    """Describe the authority, and how far the hosts have moved to it."""
    return Answer(_shown(services_of(request).rotation.status()))


@operation()
async def rotate_authority(request: web.Request, body: RotateBody) -> Answer[AuthorityStatus]:
    """Have a new authority take the place of the current one, and describe that.

    Hosts move to it as they report; sessions, streams and starts go on. A rotation that is
    under way goes on. `compromised`: the current one is trusted no more from now on, and every
    host must enrol again.
    """
    rotation, compromised = services_of(request).rotation, bool(body.compromised)
    return Answer(_shown(await rotation.rotate(caller_of(request), compromised=compromised)))


@operation()
async def finish_rotation(request: web.Request, body: FinishBody) -> Answer[AuthorityStatus]:
    """Trust the former authority no more, once every host has moved. Idempotent.

    `force`: also where some have not, which must enrol again.
    """
    rotation = services_of(request).rotation
    return Answer(_shown(await rotation.finish(caller_of(request), force=bool(body.force))))


def _shown(status: RotationStatus) -> AuthorityStatus:
    return AuthorityStatus.show(status, moved=status.enrolled - len(status.waiting))
