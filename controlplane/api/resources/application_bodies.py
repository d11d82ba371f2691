"""Request and response bodies of applications."""

import operator
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Capabilities, Name, json_pattern
from controlplane.api.operations.shown import Cores, Mebibytes, Shown, at
from controlplane.api.resources.port_bodies import ListedPort, Ports
from controlplane.applications.applications import MAX_REGIONS, MAX_STOP_GRACE, Changes
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.tags import Tag
from controlplane.registries.client import TAG
from tiltyard.contract import (
    MAX_PIDS,
    MEBI,
    MIN_PIDS,
    NANO,
    Capability,
    NetworkMode,
    Resources,
)


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
    """Limits of a session, apart from cores, memory and GPUs.

    `disk`: MiB that it may write; `pids`: its processes and threads at one time. Both are set by
    its host by default. `shm`: MiB of its /dev/shm, at most `ram`, of which they are a part; by
    default half of `ram`, at least 64.
    """

    disk: Annotated[float, Field(ge=1, le=1_000_000_000)] | None = None
    pids: Annotated[int, Field(ge=MIN_PIDS, le=MAX_PIDS)] | None = None
    shm: Annotated[float, Field(ge=1, le=1_000_000_000)] | None = None

    @field_validator("shm")
    @classmethod
    def _shm_is_memory(cls, shm: float | None, info: ValidationInfo) -> float | None:
        ram = info.data.get("ram")
        if shm is not None and ram is not None and shm > ram:
            raise ValueError("must not be above ram")
        return shm


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
_Init = Literal["tiltyard", "image"]
_Regions = Annotated[list[Name], Field(min_length=1, max_length=MAX_REGIONS)]


class ApplicationEditBody(Body):
    """The body of PUT /application/{name}; absent or `null` fields stay as they are.

    `contiguous`: the host ports of a session are neighbours, in the order of `ports`.
    `playerEvents`: players who join or leave its sessions are events from now on.
    """

    registry: Name | None = None
    repository: _Repository | None = None
    tagKeep: _TagKeep | None = None  # noqa: N815  # the interface's name
    networkMode: _NetworkMode | None = None  # noqa: N815  # the interface's name
    limits: LimitsBody | None = None
    reservation: Annotated[ResourcesBody | None, AfterValidator(_covered)] = None
    nodePool: Name | None = None  # noqa: N815  # the interface's name
    regions: _Regions | None = None
    ports: Ports | None = None
    contiguous: bool | None = None
    playerEvents: bool | None = None  # noqa: N815  # the name in JSON
    stopSignal: _StopSignal | None = None  # noqa: N815  # the name in JSON
    stopGrace: _StopGrace | None = None  # noqa: N815  # the name in JSON
    capabilities: Capabilities | None = None
    init: _Init | None = None

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
            "ports": None if ports is None else tuple(port.port() for port in ports),
            "contiguous": self.contiguous,
            "player_events": self.playerEvents,
            "disk_bytes": limits and round((limits.disk or 0) * MEBI),
            "pids": limits and (limits.pids or 0),
            "shm_bytes": limits and round((limits.shm or 0) * MEBI),
            "stop_signal": self.stopSignal,
            "stop_grace": self.stopGrace,
            "capabilities": self.capabilities,
            "image_init": self.init and self.init == "image",
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
    ports: Ports

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
    """Limits of a session; `disk` and `shm` in MiB, and `pids`, if the application sets them."""

    disk: Annotated[float, Field(exclude_if=operator.not_)] = 0
    pids: Annotated[int, Field(exclude_if=operator.not_)] = 0
    shm: Annotated[float, Field(exclude_if=operator.not_)] = 0


class ListedTag(Shown):
    """An enabled tag, and what to know about its image."""

    tag: str = at("name")
    warnings: list[str]


class ListedApplication(Shown):
    """An application in a list; `tags` are those of its enabled tags that have warnings."""

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
    contiguous: Annotated[bool, Field(exclude_if=operator.not_)]
    player_events: Annotated[bool, Field(exclude_if=operator.not_)]
    stop_signal: Annotated[str, Field(exclude_if=operator.not_)]
    stop_grace: Annotated[int, Field(exclude_if=operator.not_)]
    capabilities: Annotated[list[Capability], Field(exclude_if=operator.not_)]
    init: Annotated[
        _Init,
        BeforeValidator(lambda image_init: "image" if image_init else "tiltyard"),
        Field(exclude_if=lambda init: init == "tiltyard"),
    ] = at("image_init")
    tags: Annotated[list[ListedTag], Field(exclude_if=operator.not_, default_factory=list)]


def listed(found: tuple[Application, Sequence[Tag]]) -> ListedApplication:
    """Return the entry in a list of an application with tags that have warnings."""
    application, tags = found
    limits = ListedLimits.show(
        application.limits,
        disk=application.disk_bytes / MEBI,
        pids=application.pids,
        shm=application.shm_bytes / MEBI,
    )
    shown = [ListedTag.show(tag) for tag in tags]
    return ListedApplication.show(application, limits=limits, tags=shown)
