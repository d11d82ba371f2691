"""PUT, GET and DELETE of warm pools."""

from typing import Annotated, Literal

from aiohttp import web
from pydantic import Field

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Arguments, Environment, Labels
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Maybe, Shown, at
from controlplane.domain.applications.warm_pools import WarmPool

ClaimSignal = Literal["SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH"]
"""Signals that can notify a program and do not end sessions."""


class WarmPoolBody(Body):
    """The body of PUT /warm-pool/{image}/{location}; `null` counts as absent.

    `env`, `args` and `labels` apply to every standby; `enabled` is true by default. The processes
    of a standby that handle `claimSignal` get it once its session.json shows the claim.
    """

    size: Annotated[int, Field(ge=0, le=1000)]
    enabled: bool | None = None
    env: Environment | None = None
    args: Arguments | None = None
    labels: Labels | None = None
    claimSignal: ClaimSignal | None = None  # noqa: N815  # the name in JSON


class ListedWarmPool(Shown):
    """A warm pool; `size` standbys are wanted, `ready` can be claimed now."""

    image: str = at("application")
    location: str
    size: int
    enabled: bool
    ready: int = 0
    env: dict[str, str]
    args: list[str]
    labels: dict[str, str]
    claim_signal: Maybe


@operation()
async def set_warm_pool(request: web.Request, body: WarmPoolBody) -> None:
    """Create or replace the warm pool of an application in a region."""
    caller = caller_of(request)
    image, location = _place(request)
    pool = WarmPool(
        account=caller.account,
        application=image,
        location=location,
        size=body.size,
        enabled=body.enabled is not False,
        env=body.env or {},
        args=tuple(body.args or ()),
        labels=body.labels or {},
        claim_signal=body.claimSignal or "",
    )
    await services_of(request).warm_pools.set_pool(caller, pool)


@operation(key="warmPools")
async def list_warm_pools(request: web.Request) -> Listing[ListedWarmPool]:
    """List the warm pools of the account by application and region."""
    found = services_of(request).warm_pools.pools_of(caller_of(request))
    return Listing(found, lambda each: ListedWarmPool.show(each[0], ready=each[1]))


@operation()
async def remove_warm_pool(request: web.Request) -> None:
    """Remove the warm pool of an application in a region."""
    await services_of(request).warm_pools.remove_pool(caller_of(request), *_place(request))


def _place(request: web.Request) -> tuple[str, str]:
    return request.match_info["image"], request.match_info["location"]
