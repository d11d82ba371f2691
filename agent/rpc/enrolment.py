"""Enrolling this host: a one-time token and a signing request for a certificate.

The token ends with the fingerprint of the control plane's authority, and is sent only to the
enrolment listener of that authority: no host's certificate has its name.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agent.rpc.identity import Identity, UnfitIdentityError, make_request
from tiltyard.runtime.unreachable import why

ENROLMENT_HOST = "enrolment.tiltyard.internal"
"""The name in the certificate of the listener, wherever it is reached."""
FORMAT = 1
"""Format of requests and of readable responses; absent is 1."""
TIMEOUT_SECONDS = 20.0
LARGEST_ANSWER = 64 * 1024

_TOKEN = re.compile(r"(ty_[0-9a-f]{16}_[0-9a-f]{72})\.([0-9a-f]{64})", re.ASCII)


class NotEnrolledError(Exception):
    """The host was not enrolled; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token for one host, and the SHA-256 of the authority it is for."""

    text: str = field(repr=False)
    fingerprint: str

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read a token.

        Raises:
            NotEnrolledError: It is none.
        """
        found = _TOKEN.fullmatch(text.strip())
        if found is None:
            raise NotEnrolledError("this is no enrolment token: `agent token` prints one")
        return cls(found[1], found[2])


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The new identity of this host."""

    identity: Identity
    name: str
    region: str
    node_pool: str


async def enrol(url: str, token: Token, wanted: dict[str, str], now: float) -> Enrolled:
    """Enrol this host; `wanted` has its name and address.

    Raises:
        NotEnrolledError: The control plane refuses, or cannot be reached.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
        raise NotEnrolledError(f"{url} has not the form https://HOST:7443")
    address = f"https://{parts.netloc}/enrol"
    key, request = make_request()
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), trust_env=False
    ) as http:
        # For public data, which is compared with the fingerprint.
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        found = await _ask(http, address, {}, unverified)
        authority = _compared(str(found.get("authority", "")), token)
        body = {"format": FORMAT, "token": token.text, "request": request.decode(), **wanted}
        answer = await _ask(http, address, body, ssl.create_default_context(cadata=authority))
    try:
        identity = Identity(key, answer["certificate"].encode(), authority.encode())
        identity.check(now)
        return Enrolled(identity, answer["name"], answer["region"], answer["nodePool"])
    except (AttributeError, KeyError) as error:
        raise NotEnrolledError(f"{address} answered something else") from error
    except UnfitIdentityError as error:
        raise NotEnrolledError(f"cannot use the certificate of {address}: {error}") from error


def _compared(authority: str, token: Token) -> str:
    """Give the certificate that the token names, as PEM text; one with more behind it is refused.

    Older Pythons stop reading PEM at the padding: what follows was not compared.
    """
    try:
        certificate = ssl.PEM_cert_to_DER_cert(authority)
    except ValueError:
        certificate = b""
    alone = ssl.DER_cert_to_PEM_cert(certificate)
    named = hashlib.sha256(certificate).hexdigest() == token.fingerprint
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
                raise NotEnrolledError(f"{address} answered something else")
            answer = _read(await response.read())
            if response.status >= 400:
                told = answer.get("details") or response.reason
                if response.status == HTTPStatus.UNAUTHORIZED:
                    told = f"{told}: it was used, has expired, or is no longer good: make another"
                raise NotEnrolledError(f"{address} refused: {response.status} {told}")
            if answer.get("format", 1) != FORMAT:
                raise NotEnrolledError(
                    f"{address} is of another version: this agent knows {FORMAT}"
                )
            return answer
    except TimeoutError as error:
        raise NotEnrolledError(f"{address} did not answer within {TIMEOUT_SECONDS:g} s") from error
    except (aiohttp.ClientError, UnicodeError) as error:  # the latter of a name that is none
        raise NotEnrolledError(f"cannot reach {address}: {why(error)}") from error


def _read(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {}
