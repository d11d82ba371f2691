"""The certificate authority of hosts and control plane, for operators."""

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
    """An enrolled agent that has not fully moved to the current authority, and why."""

    agent: str = at("host.name")
    authority: str | None = at("host.state.row.authority")
    why: str


class AuthorityStatus(Shown):
    """The authorities and the progress of a rotation.

    `current` signs; `former` is still trusted during a rotation, otherwise null. Of all `enrolled`
    agents `moved` use the current one; `waiting` lists at most 100 of the others.
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
    """Describe the authority, and how many hosts have moved to it."""
    return Answer(_shown(services_of(request).rotation.status()))


@operation()
async def rotate_authority(request: web.Request, body: RotateBody) -> Answer[AuthorityStatus]:
    """Replace the current authority with a new one, and describe the rotation.

    Hosts move to it as they report; sessions, streams and starts continue. A rotation in progress
    continues. `compromised`: the current one is no longer trusted, and every host must enrol
    again.
    """
    rotation = services_of(request).rotation
    compromised = bool(body.compromised)
    return Answer(_shown(await rotation.rotate(caller_of(request), compromised=compromised)))


@operation()
async def finish_rotation(request: web.Request, body: FinishBody) -> Answer[AuthorityStatus]:
    """Stop trusting the former authority once every host has moved. Idempotent.

    `force`: even if some have not; these must enrol again.
    """
    rotation = services_of(request).rotation
    return Answer(_shown(await rotation.finish(caller_of(request), force=bool(body.force))))


def _shown(status: RotationStatus) -> AuthorityStatus:
    return AuthorityStatus.show(status, moved=status.enrolled - len(status.waiting))
