"""POST, GET and DELETE of sessions."""

import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import quote

from aiohttp import web
from pydantic import AfterValidator

from controlplane.api.bodies import Body, read_body
from controlplane.api.fields import Duration, PortNumber, SessionId, Text
from controlplane.api.queries import read_session_filter
from controlplane.api.services import caller_of, services_of
from controlplane.contract import HostSession, Port, Protocol
from controlplane.durations import parse_duration
from controlplane.session_store import Session
from controlplane.sessions import ShownSession
from controlplane.start_request import Pin, StartRequest

_RESERVED = re.compile(r"TILTYARD_(?:SESSION_ID|CONTAINER|HOST|IP|PORT_(?:TCP|UDP)_[0-9]+)\Z")
"""The names that every host injects. A host may inject more; its agent refuses those."""


def _environment_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError("a name must not be empty or hold =")
    if _RESERVED.match(name):
        raise ValueError("this name is reserved")
    return name


class PortBody(Body):
    """A host port that the caller wants."""

    container: PortNumber
    host: PortNumber
    type: Literal["tcp", "udp"] | None = None

    def pin(self) -> Pin:
        """Translate into the use case's terms."""
        return Pin(self.container, self.host, Protocol(self.type) if self.type else None)


class StartBody(Body):
    """The body of POST /session; `null` counts as absent."""

    location: Text
    image: Text
    id: SessionId | None = None
    env: dict[Annotated[str, AfterValidator(_environment_name)], Text] | None = None
    args: list[Text] | None = None
    restart: bool | None = None
    labels: dict[str, str] | None = None
    version: str | None = None
    ttl: Duration | None = None
    external_id: str | None = None
    ports: list[PortBody] | None = None

    def request(self) -> StartRequest:
        """Translate into the use case's terms."""
        return StartRequest(
            location=self.location,
            image=self.image,
            id=self.id,
            env=self.env,
            args=tuple(self.args or ()),
            restart=bool(self.restart),
            labels=self.labels,
            version=self.version or None,
            ttl=None if self.ttl is None else parse_duration(self.ttl),
            external_id=self.external_id or "",
            pins=tuple(port.pin() for port in self.ports or ()),
        )


async def start_session(request: web.Request) -> web.Response:
    """POST /session."""
    body = await read_body(request, StartBody)
    session = await services_of(request).starts.start(caller_of(request), body.request())
    session_id = session.identity.session_id
    location = f"/session/{quote(session_id, safe='')}"
    return web.json_response(_started(session), status=201, headers={"Location": location})


async def list_sessions(request: web.Request) -> web.Response:
    """GET /session."""
    wanted = read_session_filter(request, caller_of(request).account)
    shown = await services_of(request).sessions.find(wanted)
    return web.json_response({"sessions": [_entry(session) for session in shown]})


async def get_session(request: web.Request) -> web.Response:
    """GET /session/{id}."""
    services, caller = services_of(request), caller_of(request)
    shown = await services.sessions.get(caller, request.match_info["id"])
    joined = await services.players.joined(caller, shown.session.id)
    players = {"joined": joined, "joinedCount": len(joined)}
    return web.json_response(_common(shown) | {"players": players})


async def stop_session(request: web.Request) -> web.Response:
    """DELETE /session/{id}."""
    await services_of(request).sessions.stop(caller_of(request), request.match_info["id"])
    return web.Response(status=204)


def _started(session: HostSession) -> dict[str, Any]:
    return {
        "id": session.identity.session_id,
        "host": session.host,
        "ports": [
            {"type": port.protocol.value, "container": port.container, "host": port.host}
            for port in session.ports
        ],
    }


def _entry(shown: ShownSession) -> dict[str, Any]:
    return _common(shown) | {"playerCount": shown.session.player_count}


def _common(shown: ShownSession) -> dict[str, Any]:
    session = shown.session
    described = {
        "id": session.id,
        "image": session.application,
        "tag": session.tag,
        "location": session.location,
        "host": session.host,
        "created": session.created_ms,
        "port": {_port_key(port): port.host for port in session.ports},
        "status": shown.status.value,
        "labels": _labels(session),
    }
    return described | ({"external_id": session.external_id} if session.external_id else {})


def _labels(session: Session) -> dict[str, str]:
    return {
        "env": json.dumps(dict(session.injected_env)),
        "tags": json.dumps(dict(session.labels)),
    }


def _port_key(port: Port) -> str:
    return f"{port.container}/{port.protocol}"
