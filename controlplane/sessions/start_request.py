"""Requests to start sessions, and the specs made from them. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.domain.errors import InvalidRequestError, TiltyardError, Violation
from controlplane.domain.placement import Wanted, wanted_for
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.tags import Tag
from tiltyard.contract import Identity, PortRequest, Protocol, SessionSpec


@dataclass(frozen=True, slots=True)
class Pin:
    """A host port that the caller wants for a container port; any protocol when None."""

    container: int
    host: int
    protocol: Protocol | None = None


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request to start; `ttl` in seconds."""

    location: str
    image: str
    id: str | None = None
    env: Mapping[str, str] | None = None
    args: tuple[str, ...] = ()
    restart: bool = False
    labels: Mapping[str, str] | None = None
    version: str | None = None
    ttl: int | None = None
    external_id: str = ""
    pins: tuple[Pin, ...] = ()


def pinned_ports(
    declared: Sequence[PortRequest], pins: Sequence[Pin], fields: Sequence[str] = ()
) -> tuple[PortRequest, ...]:
    """Apply the caller's pins to the application's ports, in the application's order.

    `fields` names the pins in requests other than POST /session.

    Raises:
        InvalidRequestError: A pin names no declared port, an ambiguous one, or one twice.
    """
    ports = list(declared)
    violations: list[Violation] = []
    taken: set[int] = set()
    for number, pin in enumerate(pins):
        found = [
            index
            for index, port in enumerate(declared)
            if port.container == pin.container and pin.protocol in {None, port.protocol}
        ]
        if not found:
            text = "the application declares no such port"
        elif len(found) > 1:
            text = "declared for both protocols: type is needed"
        elif found[0] in taken:
            text = "another entry pins this port"
        else:
            taken.add(found[0])
            ports[found[0]] = replace(declared[found[0]], pinned=pin.host)
            continue
        field = fields[number] if fields else f"ports[{number}].container"
        violations.append(Violation(field, text))
    if violations:
        raise InvalidRequestError(tuple(violations))
    return tuple(ports)


def ignored_of_a_claim(request: StartRequest) -> str:
    """Return the fields that a claim ignores, as JSON that the game may read."""
    fields = {
        "env": request.env,
        "args": request.args,
        "restart": request.restart,
        "labels": request.labels,
        "version": request.version,
    }
    given = {name: value for name, value in fields.items() if value}
    return json.dumps(given, default=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A request with its application, tag and ports.

    `no_tag` is why it cannot start cold; a standby can still serve it.
    """

    request: StartRequest
    application: Application
    tag: Tag
    ports: tuple[PortRequest, ...]
    no_tag: TiltyardError | None = None

    @property
    def wanted(self) -> Wanted:
        """What a host must have."""
        return wanted_for(self.spec(""))

    def spec(self, session_id: str) -> SessionSpec:
        """Make the spec for the host."""
        request = self.request
        application = self.application
        tag = self.tag
        identity = Identity(
            account=application.account,
            session_id=session_id,
            application=application.name,
            tag=tag.name,
            location=request.location,
            labels=request.labels or {},
            external_id=request.external_id,
        )
        return replace(
            application.spec(identity, tag.image),
            args=request.args,
            env=request.env or {},
            restart=request.restart,
            ttl=request.ttl,
            ports=self.ports,
        )
