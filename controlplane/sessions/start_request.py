"""Requests to start sessions, and the specs made from them. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import InvalidRequestError, TiltyardError, Violation
from controlplane.domain.placement.placement import Wanted, wanted_for
from tiltyard.contract import Identity, NetworkMode, PortRequest, Protocol, SessionSpec
from tiltyard.records import record

MAX_PORT = 65535
_FIELDS = json.JSONEncoder(default=dict)  # Made once: each claim encodes some


@dataclass(frozen=True, slots=True)
class Pin:
    """A host port that the caller wants for a container port; any protocol when None."""

    container: int
    host: int
    protocol: Protocol | None = None


@record(frozen=True, slots=True)
class StartRequest:
    """A request to start; `ttl` in seconds. `traceparent` is that of the request, "" if none."""

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
    traceparent: str = ""


def requested_ports(
    application: Application, pins: Sequence[Pin], fields: Sequence[str] = ()
) -> tuple[PortRequest, ...]:
    """Apply the caller's pins to an application's ports, in the application's order.

    If the ports are `contiguous`, a pin also decides the numbers of the ports beside it, up to the
    next pin. `fields` names the pins in requests other than POST /session.

    Raises:
        InvalidRequestError: A pin names no declared port, an ambiguous one, or one twice, or no
            session can have the ports.
    """
    declared = application.ports
    pin_of = _pins_by_port(declared, pins, fields)
    in_host = application.network_mode is NetworkMode.HOST
    bound = set() if in_host else {(p.protocol, p.container) for p in declared if not p.same}
    ports: list[PortRequest] = []
    wrong: dict[str, str] = {}
    for index, port in enumerate(declared):
        anchor = _anchor(index, pin_of, contiguous=application.contiguous)
        if anchor is None:
            ports.append(port)
            continue
        number = pin_of[anchor]
        host = pins[number].host + index - anchor
        field = fields[number] if fields else f"ports[{number}].host"
        if not 1 <= host <= MAX_PORT:
            wrong.setdefault(field, "leaves no room for the ports beside it")
        elif port.same and (port.protocol, host) in bound:
            text = f"the application listens on {host}/{port.protocol} for another port"
            wrong.setdefault(field, text)
        ports.append(replace(port, pinned=host))
    if wrong:
        raise InvalidRequestError(tuple(Violation(field, text) for field, text in wrong.items()))
    return tuple(ports)


def _anchor(index: int, pinned: Collection[int], *, contiguous: bool) -> int | None:
    """Return which pinned port decides the number of the port at `index`, if any does."""
    if not contiguous:
        return index if index in pinned else None
    before = [each for each in pinned if each <= index]
    return max(before) if before else min(pinned, default=None)


def _pins_by_port(
    declared: Sequence[PortRequest], pins: Sequence[Pin], fields: Sequence[str]
) -> dict[int, int]:
    """Return the number of each pin by the place of its port. Raises as `requested_ports`."""
    violations: list[Violation] = []
    taken: dict[int, int] = {}
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
            taken[found[0]] = number
            continue
        field = fields[number] if fields else f"ports[{number}].container"
        violations.append(Violation(field, text))
    if violations:
        raise InvalidRequestError(tuple(violations))
    return taken


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
    return _FIELDS.encode(given)


@record(frozen=True, slots=True)
class Plan:
    """A request with its application, tag and ports.

    `no_tag`: the error to raise if no standby can be claimed, since no tag can be started.
    """

    request: StartRequest
    application: Application
    tag: Tag
    ports: tuple[PortRequest, ...]
    no_tag: TiltyardError | None = None

    @property
    def wanted(self) -> Wanted:
        """The requirements that a host must meet."""
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
            traceparent=request.traceparent,
        )
        return replace(
            application.spec(identity, tag.image),
            args=request.args,
            env=request.env or {},
            restart=request.restart,
            ttl=request.ttl,
            ports=self.ports,
        )
