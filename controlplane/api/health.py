"""Liveness and readiness."""

from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import services_of
from controlplane.domain.errors import NotReadyError


class Health(TypedDict):
    """The process answers."""

    status: Literal["ok"]
    environment: str


class Readiness(TypedDict):
    """The control plane has a view of its fleet."""

    ready: Literal[True]


@operation()
async def get_health(request: web.Request) -> Answer[Health]:
    """Report that the process answers, and which environment this is."""
    return Answer({"status": "ok", "environment": services_of(request).environment})


@operation()
async def get_ready(request: web.Request) -> Answer[Readiness]:
    """Report whether every agent has reconciled or is known to be out of reach."""
    if not services_of(request).fleet.ready:
        raise NotReadyError
    return Answer({"ready": True})
