"""Applications and the enabling of tags."""

import re
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from controlplane.api.bodies import Body, read_body
from controlplane.api.services import caller_of, services_of
from controlplane.application_store import Application
from controlplane.contract import NetworkMode, PortRequest, Protocol, Resources

NANO = 1_000_000_000
MEBI = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z", re.ASCII)


def _name(text: str) -> str:
    if not _NAME.match(text):
        raise ValueError("must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return text


def _whole(number: float) -> float:
    if number != int(number):
        raise ValueError("must be a whole number")
    return number


class ResourcesBody(Body):
    """Cores (fractions), memory in MiB and whole GPU devices."""

    cpu: Annotated[float, Field(ge=1 / NANO, le=1_000_000)]
    ram: Annotated[float, Field(ge=1 / MEBI, le=1_000_000_000)]
    gpu: Annotated[float, Field(ge=0, le=1_000), AfterValidator(_whole)] | None = None

    def resources(self) -> Resources:
        """Translate into whole units."""
        return Resources(round(self.cpu * NANO), round(self.ram * MEBI), int(self.gpu or 0))


class PortBindingBody(Body):
    """A port that the application listens on."""

    requested: Annotated[int, Field(ge=1, le=65535)]
    protocol: Literal["tcp", "udp"]
    tls: bool

    @field_validator("tls")
    @classmethod
    def _tls_is_tcp(cls, tls: bool, info: ValidationInfo) -> bool:
        if tls and info.data.get("protocol") == "udp":
            raise ValueError("needs protocol tcp")
        return tls


class ApplicationBody(Body):
    """The body of POST /application."""

    name: Annotated[str, AfterValidator(_name)]
    registry: Annotated[str, Field(min_length=1)]
    repository: Annotated[str, Field(min_length=1)]
    tagKeep: Annotated[int, Field(ge=1, le=100)]  # noqa: N815  # the interface's name
    networkMode: Literal["bridge", "host"]  # noqa: N815  # the interface's name
    limits: ResourcesBody
    reservation: ResourcesBody
    nodePool: Annotated[str, Field(min_length=1)]  # noqa: N815  # the interface's name
    regions: Annotated[list[str], Field(min_length=1)]
    ports: list[PortBindingBody]

    @field_validator("ports")
    @classmethod
    def _each_port_once(cls, ports: list[PortBindingBody]) -> list[PortBindingBody]:
        pairs = [(port.requested, port.protocol) for port in ports]
        if len(set(pairs)) != len(pairs):
            raise ValueError("a port and protocol may be declared once")
        return ports

    @field_validator("reservation")
    @classmethod
    def _limits_cover(cls, reservation: ResourcesBody, info: ValidationInfo) -> ResourcesBody:
        limits: ResourcesBody | None = info.data.get("limits")
        if limits is not None and not reservation.resources().fits_in(limits.resources()):
            raise ValueError("must not be above limits")
        return reservation

    def application(self, account: str) -> Application:
        """Translate into the use case's terms."""
        return Application(
            account=account,
            name=self.name,
            registry=self.registry,
            repository=self.repository,
            tag_keep=self.tagKeep,
            network_mode=NetworkMode(self.networkMode),
            node_pool=self.nodePool,
            regions=tuple(dict.fromkeys(self.regions)),
            limits=self.limits.resources(),
            reservation=self.reservation.resources(),
            ports=tuple(
                PortRequest(port.requested, Protocol(port.protocol), port.tls)
                for port in self.ports
            ),
        )


class TagBody(Body):
    """The body of POST /application/{name}/tags."""

    tag: str


async def create_application(request: web.Request) -> web.Response:
    """POST /application."""
    body = await read_body(request, ApplicationBody)
    caller = caller_of(request)
    await services_of(request).applications.create(caller, body.application(caller.account))
    return web.json_response({}, status=201)


async def list_applications(request: web.Request) -> web.Response:
    """GET /application."""
    found = await services_of(request).applications.all_of(caller_of(request))
    return web.json_response({"applications": [_listed(application) for application in found]})


async def enable_tag(request: web.Request) -> web.Response:
    """POST /application/{name}/tags."""
    body = await read_body(request, TagBody)
    name = request.match_info["name"]
    await services_of(request).tags.enable(caller_of(request), name, body.tag)
    return web.Response(status=204)


def _listed(application: Application) -> dict[str, Any]:
    return {
        "name": application.name,
        "registry": application.registry,
        "repository": application.repository,
        "tagKeep": application.tag_keep,
        "networkMode": application.network_mode.value,
        "nodePool": application.node_pool,
        "regions": list(application.regions),
        "limits": _resources(application.limits),
        "reservation": _resources(application.reservation),
        "ports": [
            {"requested": port.container, "protocol": port.protocol.value, "tls": port.tls}
            for port in application.ports
        ],
    }


def _resources(resources: Resources) -> dict[str, float]:
    shown = {"cpu": resources.nano_cpus / NANO, "ram": resources.memory_bytes / MEBI}
    return shown | ({"gpu": resources.gpus} if resources.gpus else {})
