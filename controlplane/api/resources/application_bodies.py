"""Request and response bodies of applications."""

import operator
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Name, PortNumber, json_pattern
from controlplane.api.operations.shown import Cores, Mebibytes, Shown, at
from controlplane.applications.applications import MAX_PORTS, MAX_REGIONS, MAX_STOP_GRACE, Changes
from controlplane.registries.client import TAG
from controlplane.storage.tables.applications import Application
from tiltyard.contract import MEBI, NANO, NetworkMode, PortRequest, Protocol, Resources


def _whole(number: float) -> float:
    if number != int(number):
        raise ValueError("must be a whole number")
    return number


class ResourcesBody(Body):
    """Cores (fractions), memory in MiB and whole GPU devices."""

    cpu: Annotated[float, Field(ge=1 / NANO, le=1_000_000)]
    ram: Annotated[float, Field(ge=1 / MEBI, le=1_000_000_000)]
    gpu: (
        Annotated[
            float,
            Field(ge=0, le=1_000, json_schema_extra={"multipleOf": 1}),
            AfterValidator(_whole),
        ]
        | None
    ) = None

    def resources(self) -> Resources:
        """Convert to billionths of a core and bytes."""
        return Resources(round(self.cpu * NANO), round(self.ram * MEBI), int(self.gpu or 0))


class LimitsBody(ResourcesBody):
    """Limits of a session; `disk` is the MiB that it may write, by default set by its host."""

    disk: Annotated[float, Field(ge=1, le=1_000_000_000)] | None = None


class PortBindingBody(Body):
    """A port that the application listens on."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {"properties": {"protocol": {"const": "udp"}, "tls": {"const": True}}}
        }
    )

    requested: PortNumber
    protocol: Literal["tcp", "udp"]
    tls: bool

    @field_validator("tls")
    @classmethod
    def _tls_is_tcp(cls, tls: bool, info: ValidationInfo) -> bool:
        if tls and info.data.get("protocol") == "udp":
            raise ValueError("needs protocol tcp")
        return tls


def _each_once(ports: list[PortBindingBody]) -> list[PortBindingBody]:
    pairs = [(port.requested, port.protocol) for port in ports]
    if len(set(pairs)) != len(pairs):
        raise ValueError("a port and protocol may be declared once")
    return ports


_Reserved = TypeVar("_Reserved", bound=ResourcesBody | None)


def _covered(reservation: _Reserved, info: ValidationInfo) -> _Reserved:
    limits: ResourcesBody | None = info.data.get("limits")
    if limits is None or reservation is None:
        return reservation
    if not reservation.resources().fits_in(limits.resources()):
        raise ValueError("must not be above limits")
    return reservation


_Repository = Annotated[str, Field(min_length=1, max_length=512)]
_TagKeep = Annotated[int, Field(ge=1, le=100)]
_NetworkMode = Literal["bridge", "host"]
_StopSignal = Literal[
    "",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGABRT",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGTERM",
    "SIGCONT",
    "SIGWINCH",
    "SIGPWR",
    "SIGRTMIN+3",
]
"""Those that games and the inits of images handle; empty for the image's own."""
_StopGrace = Annotated[int, Field(ge=0, le=MAX_STOP_GRACE)]
_Regions = Annotated[list[Name], Field(min_length=1, max_length=MAX_REGIONS)]
_Ports = Annotated[list[PortBindingBody], Field(max_length=MAX_PORTS), AfterValidator(_each_once)]


class ApplicationEditBody(Body):
    """The body of PUT /application/{name}; absent or `null` fields stay as they are."""

    registry: Name | None = None
    repository: _Repository | None = None
    tagKeep: _TagKeep | None = None  # noqa: N815  # the interface's name
    networkMode: _NetworkMode | None = None  # noqa: N815  # the interface's name
    limits: LimitsBody | None = None
    reservation: Annotated[ResourcesBody | None, AfterValidator(_covered)] = None
    nodePool: Name | None = None  # noqa: N815  # the interface's name
    regions: _Regions | None = None
    ports: _Ports | None = None
    stopSignal: _StopSignal | None = None  # noqa: N815  # the name in JSON
    stopGrace: _StopGrace | None = None  # noqa: N815  # the name in JSON

    def changes(self) -> Changes:
        """Convert the given fields to those of an application."""
        limits = self.limits
        reservation = self.reservation
        ports = self.ports
        found = {
            "registry": self.registry,
            "repository": self.repository,
            "tag_keep": self.tagKeep,
            "network_mode": self.networkMode and NetworkMode(self.networkMode),
            "node_pool": self.nodePool,
            "regions": self.regions and tuple(dict.fromkeys(self.regions)),
            "limits": limits and limits.resources(),
            "reservation": reservation and reservation.resources(),
            "ports": None
            if ports is None
            else tuple(PortRequest(p.requested, Protocol(p.protocol), p.tls) for p in ports),
            "disk_bytes": limits and round((limits.disk or 0) * MEBI),
            "stop_signal": self.stopSignal,
            "stop_grace": self.stopGrace,
        }
        return {name: value for name, value in found.items() if value is not None}


class ApplicationBody(ApplicationEditBody):
    """The body of POST /application."""

    name: Annotated[str, Field(max_length=128, pattern="^[A-Za-z0-9._-]{1,128}$")]
    registry: Name
    repository: _Repository
    tagKeep: _TagKeep  # noqa: N815  # the interface's name
    networkMode: _NetworkMode  # noqa: N815  # the interface's name
    limits: LimitsBody
    reservation: Annotated[ResourcesBody, AfterValidator(_covered)]
    nodePool: Name  # noqa: N815  # the interface's name
    regions: _Regions
    ports: _Ports

    def application(self, account: str) -> Application:
        """Convert to an application of an account."""
        return Application(account=account, name=self.name, **self.changes())


class TagBody(Body):
    """The body of POST /application/{name}/tags."""

    tag: Annotated[str, Field(max_length=128, json_schema_extra={"pattern": json_pattern(TAG)})]


class ListedResources(Shown):
    """Cores, memory in MiB and whole GPU devices."""

    cpu: Cores = at("nano_cpus")
    ram: Mebibytes = at("memory_bytes")
    gpu: Annotated[int, Field(exclude_if=operator.not_)] = at("gpus")


class ListedLimits(ListedResources):
    """Limits of a session; `disk` in MiB if the application sets it."""

    disk: Annotated[float, Field(exclude_if=operator.not_)] = 0


class ListedPort(Shown):
    """A port that the application listens on."""

    requested: int = at("container")
    protocol: Literal["tcp", "udp"] = at("protocol.value")
    tls: bool


class ListedApplication(Shown):
    """An application in a list."""

    name: str
    registry: str
    repository: str
    tag_keep: int
    network_mode: _NetworkMode = at("network_mode.value")
    node_pool: str
    regions: list[str]
    limits: ListedLimits
    reservation: ListedResources
    ports: list[ListedPort]
    stop_signal: Annotated[str, Field(exclude_if=operator.not_)]
    stop_grace: Annotated[int, Field(exclude_if=operator.not_)]


def listed(application: Application) -> ListedApplication:
    """Return an application's entry in a list."""
    limits = ListedLimits.show(application.limits, disk=application.disk_bytes / MEBI)
    return ListedApplication.show(application, limits=limits)
