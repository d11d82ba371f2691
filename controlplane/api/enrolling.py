"""The enrolment listener: `POST /enrol` over TLS 1.3, and nothing else.

Separate from the API because its certificate comes from the authority, all that a new host trusts.
A request without a token returns the authority's certificate: the host compares the fingerprint
before it sends its token.
"""

import re
import ssl
from typing import Annotated, Literal

from aiohttp import web
from pydantic import AfterValidator, Field

from controlplane.api.operations.bodies import Body, read_body
from controlplane.domain.access.enrolment import EnrolmentRequest
from controlplane.http.application import Application
from controlplane.http.gate import Bounds
from controlplane.http.messages import Request
from controlplane.metrics.http import HttpMetrics
from controlplane.operators.enrolment import Enrolment
from controlplane.pki.authority import MAX_REQUEST_BYTES
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FORMAT = 1  # Format of request and response; 1 if the request has none

MAX_ENROL_BODY = 32 * 1024
BOUNDS = Bounds(total=256, per_address=16)

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):([0-9]{1,5})\Z", re.ASCII)


def _address(text: str) -> str:
    found = _ADDRESS.match(text)
    if found is None or not 1 <= int(found[1]) <= 65535:
        raise ValueError("must have the form host:port")
    return text


class EnrolBody(Body):
    """The body of POST /enrol; without a token the other fields are ignored."""

    max_bytes = MAX_ENROL_BODY

    format: Literal[1] = 1
    token: Annotated[str, Field(max_length=512)] | None = None
    request: Annotated[str, Field(max_length=MAX_REQUEST_BYTES)] = ""
    name: Annotated[str, Field(max_length=128)] = ""
    address: Annotated[str, AfterValidator(_address)] | None = None
    region: str | None = None
    nodePool: str | None = None  # noqa: N815  # the name in JSON


class _Handshake(ssl.SSLObject):
    """TLS object that logs failed handshakes; asyncio does not."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            log.warning("refused TLS handshake", kind=error.reason or "UNKNOWN")
            raise


def make_enrolling_app(enrolment: Enrolment, metrics: HttpMetrics) -> Application:
    """Build the application of the listener."""

    async def enrol(request: Request) -> web.StreamResponse:
        with request.ended_by_disconnect():
            body = await read_body(request, EnrolBody)
        authority = enrolment.authority.decode()
        if body.token is None:
            return web.json_response({"format": FORMAT, "authority": authority})
        # Behind a full stop the token has the authority's fingerprint, for the host.
        wanted = EnrolmentRequest(
            token=body.token.partition(".")[0],
            signing_request=body.request,
            name=body.name,
            address=body.address or "",
            region=body.region,
            node_pool=body.nodePool,
        )
        row, issued = await enrolment.enrol(wanted, request.remote or "")
        answer = {
            "format": FORMAT,
            "id": row.id or "",
            "name": row.name,
            "region": row.region,
            "nodePool": row.node_pool,
            "certificate": issued.certificate.decode(),
            "authority": authority,
        }
        return web.json_response(answer, status=201)

    app = Application(metrics)
    app.add_route("POST", "/enrol", enrol)
    return app


def enrolling_tls() -> ssl.SSLContext:
    """Return the listener's TLS context, without a certificate yet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.sslobject_class = _Handshake
    return context
