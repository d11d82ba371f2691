"""One attempt to deliver a message, to an endpoint that may be hostile.

- The name is looked up once per attempt. All its addresses must be public, or in a network that
  operators allow, and the connection is made to one of these addresses.
- Redirects are not followed, proxies of the environment are not used, cookies are not kept.
- TLS is verified against the host of the URL.
- Duration, bytes, headers and the part of the body that is read are bounded.
"""

import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from importlib.metadata import version

import aiohttp
from yarl import URL

from controlplane.domain.addresses import Network
from controlplane.domain.webhooks.attempts import MAX_ANSWER, Answer
from controlplane.domain.webhooks.retries import Outcome, outcome_of
from controlplane.domain.webhooks.targets import is_allowed
from controlplane.registries.endpoint import is_address
from controlplane.webhooks.bounded_socket import TOO_LONG, BoundedSocket
from controlplane.webhooks.resolver import CheckedResolver, ForbiddenAddressError, LookUps
from tiltyard.runtime.clock import Clock, timeout

TOTAL_SECONDS = 20.0  # Of an attempt; Standard Webhooks recommends 15 to 30
BODY_SECONDS = 1.0  # For the beginning of the body, once the status is known
MAX_HEADER = 4096  # Bytes of the status line, and of each header
MAX_HEADERS = 64

_AGENT = f"Tiltyard/{version('tiltyard')}"
_SECONDS = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


class Sender:
    """Sends messages; each attempt has a connection of its own."""

    def __init__(
        self,
        clock: Clock,
        *,
        networks: Sequence[Network] = (),
        tls: ssl.SSLContext | bool = True,
        look_ups: LookUps | None = None,
    ) -> None:
        """`networks` are allowed though they are not public. `tls`: True for the default one."""
        self._clock = clock
        self._networks = networks
        self._tls = tls
        self._look_ups = look_ups or LookUps()

    def close(self) -> None:
        """Abandon lookups. Idempotent."""
        self._look_ups.close()

    async def send(
        self, account: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """Send a message to a checked URL of an account, and read the beginning of the answer."""
        began = self._clock.monotonic()
        try:
            async with timeout(TOTAL_SECONDS, self._clock):
                return await self._exchange(account, URL(url, encoded=True), headers, body)
        except TimeoutError:
            outcome = Outcome.TIMEOUT
            text = f"no answer within {TOTAL_SECONDS:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            outcome, text = _failure(error)
        return Answer(outcome, self._clock.monotonic() - began, error=text)

    async def _exchange(
        self, account: str, url: URL, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        began = self._clock.monotonic()
        host = url.host or ""
        # An address is not resolved.
        if is_address(host) and not is_allowed(host, self._networks):
            raise ForbiddenAddressError
        async with (
            self._session(account) as session,
            session.post(
                url,
                data=body,
                headers={
                    **headers,
                    "Content-Type": "application/json",
                    "Accept-Encoding": "identity",
                    "User-Agent": _AGENT,
                },
                allow_redirects=False,
                ssl=self._tls,
            ) as response,
        ):
            text = await self._beginning(response)
            seconds = self._clock.monotonic() - began
            # Whatever else would follow is not read.
            response.close()
            return Answer(
                outcome_of(response.status),
                seconds,
                response.status,
                text=text,
                retry_after=self._retry_after(response.headers.get("Retry-After", "")),
            )

    def _session(self, account: str) -> aiohttp.ClientSession:
        resolver = CheckedResolver(self._look_ups, account, self._networks)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=resolver,
                use_dns_cache=False,
                force_close=True,
                socket_factory=_bounded_socket,
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
            max_headers=MAX_HEADERS,
        )

    async def _beginning(self, response: aiohttp.ClientResponse) -> str:
        """Read the beginning of the body; a slow or broken one changes nothing."""
        body = bytearray()
        try:
            async with timeout(BODY_SECONDS, self._clock):
                while len(body) < MAX_ANSWER:
                    chunk = await response.content.read(MAX_ANSWER - len(body))
                    if not chunk:
                        break
                    body += chunk
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass
        return bytes(body).decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")

    def _retry_after(self, text: str) -> float | None:
        """Read seconds, or a date, as seconds from now."""
        if _SECONDS.match(text):
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.time())
        except (ValueError, OverflowError):
            return None


def _bounded_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    return BoundedSocket(family, kind, protocol)


_FAILURES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Outcome, str], ...] = (
    (
        ForbiddenAddressError,
        Outcome.FORBIDDEN,
        "its host has an address that is not public",
    ),
    (
        (aiohttp.ClientConnectorCertificateError, ssl.SSLError, aiohttp.ClientSSLError),
        Outcome.UNTRUSTED,
        "its certificate is not valid, or its TLS cannot be used",
    ),
    (
        (aiohttp.ClientConnectorDNSError, UnicodeError),  # "xn--" of nothing
        Outcome.UNREACHABLE,
        "its name cannot be looked up",
    ),
    (
        (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, ValueError),
        Outcome.INVALID,
        "its answer is not HTTP, or has too large headers",
    ),
    (
        aiohttp.ServerDisconnectedError,
        Outcome.UNREACHABLE,
        "it closed the connection without an answer",
    ),
    (Exception, Outcome.UNREACHABLE, "it cannot be connected to"),
)


def _failure(error: Exception) -> tuple[Outcome, str]:
    """Return the outcome of an error and its text, which names no address."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause: Exception = error.os_error
        error = cause if isinstance(cause, ForbiddenAddressError) else error
    if isinstance(error, OSError) and error.errno == TOO_LONG:
        return Outcome.INVALID, "its answer is too long"
    return next((outcome, text) for kinds, outcome, text in _FAILURES if isinstance(error, kinds))
