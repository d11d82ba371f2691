"""Enrols this host: sends a one-time token and a signing request, receives a certificate.

The token contains the fingerprint of the control plane's authority, and is sent only to a listener
whose certificate that authority signed for ENROLMENT_HOST.
"""

import hashlib
import json
import re
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agent.rpc.identity import Identity, UnfitIdentityError
from agent.rpc.signing import check, make_request
from tiltyard.runtime.unreachable import why

ENROLMENT_HOST = "enrolment.tiltyard.internal"
"""Name in the listener's certificate, independent of its address."""
FORMAT = 1  # Format of requests and of readable responses; absent is 1
TIMEOUT_SECONDS = 20.0
LARGEST_ANSWER = 64 * 1024

_TOKEN = re.compile(r"(ty_[0-9a-f]{16}_[0-9a-f]{72})\.([0-9a-f]{64})", re.ASCII)
"""A token for one host, and the SHA-256 of its authority's certificate."""


class NotEnrolledError(Exception):
    """The host was not enrolled; the text states the cause and a hint."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The new identity of this host."""

    identity: Identity
    name: str
    region: str
    node_pool: str


async def enrol(url: str, token: str, wanted: dict[str, str], now: float) -> Enrolled:
    """Enrol this host; `wanted`: further JSON fields of the request. Raises NotEnrolledError."""
    found = _TOKEN.fullmatch(token.strip())
    if found is None:
        raise NotEnrolledError("this is not an enrolment token: `agent token` prints one")
    secret, fingerprint = found.groups()
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
        raise NotEnrolledError(f"{url} is not of the form https://HOST:7443")
    address = f"https://{parts.netloc}/enrol"
    key, request = make_request()
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), trust_env=False
    ) as http:
        # Fetches only public data, which is checked against the fingerprint.
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        public = await _ask(http, address, {}, unverified)
        authority = _verified(str(public.get("authority", "")), fingerprint)
        body = {"format": FORMAT, "token": secret, "request": request.decode(), **wanted}
        answer = await _ask(http, address, body, ssl.create_default_context(cadata=authority))
    try:
        identity = Identity(key, answer["certificate"].encode(), authority.encode())
        check(identity, now)
        return Enrolled(identity, answer["name"], answer["region"], answer["nodePool"])
    except (AttributeError, KeyError) as error:
        raise NotEnrolledError(f"{address} sent an unexpected response") from error
    except UnfitIdentityError as error:
        raise NotEnrolledError(f"cannot use the certificate of {address}: {error}") from error


def _verified(authority: str, fingerprint: str) -> str:
    """Return the PEM certificate of this SHA-256; trailing data is rejected.

    Older Pythons stop reading PEM at the padding, and would leave the rest unchecked.
    """
    try:
        certificate = ssl.PEM_cert_to_DER_cert(authority)
    except ValueError:
        certificate = b""
    alone = ssl.DER_cert_to_PEM_cert(certificate)
    named = hashlib.sha256(certificate).hexdigest() == fingerprint
    if not named or authority.split() != alone.split():
        raise NotEnrolledError(
            "the server is not the control plane that issued the token: nothing was sent"
        )
    return alone


async def _ask(
    http: aiohttp.ClientSession, address: str, body: dict[str, Any], tls: ssl.SSLContext
) -> dict[str, Any]:
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        async with http.post(
            address, json=body, ssl=tls, server_hostname=ENROLMENT_HOST, allow_redirects=False
        ) as response:
            if not 0 < (response.content_length or 0) <= LARGEST_ANSWER:
                raise NotEnrolledError(f"{address} sent an unexpected response")
            answer = _read(await response.read())
            if response.status >= 400:
                text = answer.get("details") or response.reason
                if response.status == HTTPStatus.UNAUTHORIZED:
                    text = f"{text}: it was used, has expired, or was invalidated: create another"
                raise NotEnrolledError(f"{address} refused: {response.status} {text}")
            if answer.get("format", 1) != FORMAT:
                raise NotEnrolledError(
                    f"{address} is of another version: this agent knows {FORMAT}"
                )
            return answer
    except TimeoutError as error:
        raise NotEnrolledError(f"{address} did not answer within {TIMEOUT_SECONDS:g} s") from error
    except (aiohttp.ClientError, UnicodeError) as error:  # UnicodeError: an invalid host name
        raise NotEnrolledError(f"cannot reach {address}: {why(error)}") from error


def _read(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {}
