"""HTTP client for registries, which may be hostile.

A registry cannot make the client connect elsewhere (SSRF):

- No redirects. The token realm must be the registry's own host and port, or in `auth_hosts`.
- Names must resolve to public addresses only, unless the registry is `private` or configured by
  IP address. The connection uses the checked address, without a second lookup.
- Plain HTTP only to loopback. Response sizes, token lifetimes and call times are limited.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from controlplane.domain.access.redaction import cut_out
from controlplane.registries.endpoint import Endpoint, UnusableError, base_url, is_address
from controlplane.registries.login import checked_realm, read_challenges, read_token
from controlplane.registries.resolver import LookUps, Resolver
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=5, connect=2)
"""Per request. A registry usually answers in milliseconds."""

MAX_CONNECTIONS = 8  # Per host, so that an unresponsive registry cannot starve the others

MAX_TOKEN_BYTES = 64 * 1024
MAX_TOKENS = 1024  # Cached tokens, one per repository; expired ones, then the oldest are evicted
MAX_CONTEXTS = 64  # Cached TLS contexts; the least recently used is evicted first
TOKEN_MARGIN = 10.0  # Seconds before its stated expiry at which a token is replaced

_DENIED = frozenset({401, 403, 404})


@dataclass(frozen=True, slots=True)
class Reply:
    """A response with its whole body."""

    status: int
    headers: CIMultiDictProxy[str]
    links: Mapping[str, Any]
    body: bytes


class RegistryHttp:
    """Owns the connections to registries and the cached tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        """By whether their registries may have public addresses only."""
        self._look_ups = LookUps()
        self._tokens: dict[tuple[Endpoint, str], tuple[str, float]] = {}
        self._loading = Threads(1, "registry certificates")

    async def close(self) -> None:
        """Close the connection pools. Idempotent."""
        for session in self._sessions.values():
            await session.close()
        self._look_ups.close()
        await self._loading.close()

    async def ask(
        self,
        endpoint: Endpoint,
        path: str,
        *,
        scope: str,
        max_bytes: int,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Reply:
        """Send a GET request, logging in if the registry requires it.

        Registries do not distinguish missing and forbidden repositories: a refusal despite a
        token, or of an anonymous token, is returned as 404.

        Raises:
            UnusableError: Unreachable, invalid or too large response, or the log-in failed.
            TimeoutError: No answer in time.
        """
        url = base_url(endpoint.address).with_path(path).with_query(params)
        headers = {"Accept": accept}
        known = self._cached_token(endpoint, scope)
        if known is not None:
            headers["Authorization"] = known
        reply = await self._send(endpoint, url, headers, max_bytes)
        if reply.status == 401:
            header = await self._log_in(endpoint, scope, reply)
            if header is None:
                return replace(reply, status=404)
            headers["Authorization"] = header
            reply = await self._send(endpoint, url, headers, max_bytes)
        if headers.get("Authorization", "").startswith("Bearer ") and reply.status in _DENIED:
            if endpoint.basic is not None and reply.status != 404:
                log.warning(
                    "a registry refused a token: check the permissions of its user",
                    registry=endpoint.address,
                    status=reply.status,
                    scope=scope,
                )
            return replace(reply, status=404)
        if reply.status == 401:
            raise UnusableError("it denied access")
        return reply

    async def _log_in(self, endpoint: Endpoint, scope: str, refusal: Reply) -> str | None:
        """Return the `Authorization` header; None if the registry gives no anonymous token."""
        self._tokens.pop((endpoint, scope), None)
        wanted = read_challenges(refusal.headers.getall("WWW-Authenticate", []))
        if "bearer" in wanted:
            return await self._fetch_token(endpoint, scope, wanted["bearer"])
        if "basic" not in wanted or endpoint.basic is None:
            raise UnusableError("it requires credentials, and none are configured")
        return endpoint.basic

    async def _fetch_token(
        self, endpoint: Endpoint, scope: str, challenge: Mapping[str, str]
    ) -> str | None:
        try:
            realm = checked_realm(endpoint, challenge.get("realm", ""))
        except UnusableError as error:
            raise UnusableError(str(error), cut_out(endpoint.password, error.detail)) from None
        query = {"service": challenge["service"]} if "service" in challenge else {}
        headers = {"Accept": "application/json"}
        if endpoint.basic is not None:
            headers["Authorization"] = endpoint.basic
        url = realm.update_query(query | {"scope": scope})
        reply = await self._send(endpoint, url, headers, MAX_TOKEN_BYTES)
        if endpoint.basic is None and reply.status in _DENIED:
            return None
        failure = f"its token service answered {reply.status}"
        if reply.status in {401, 403}:
            raise UnusableError("it denied access", f"it denied access: {failure}")
        if reply.status != 200:
            raise UnusableError(failure)
        token, lifetime = read_token(reply.body)
        self._cache_token(endpoint, scope, f"Bearer {token}", lifetime)
        return f"Bearer {token}"

    def _cached_token(self, endpoint: Endpoint, scope: str) -> str | None:
        header, until = self._tokens.get((endpoint, scope), (None, 0.0))
        return header if self._clock.monotonic() < until else None

    def _cache_token(self, endpoint: Endpoint, scope: str, header: str, lifetime: float) -> None:
        now = self._clock.monotonic()
        self._tokens[endpoint, scope] = header, now + lifetime - TOKEN_MARGIN
        if len(self._tokens) > MAX_TOKENS:
            self._tokens = {key: each for key, each in self._tokens.items() if each[1] > now}
        if len(self._tokens) > MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]

    async def _send(
        self, endpoint: Endpoint, url: URL, headers: dict[str, str], max_bytes: int
    ) -> Reply:
        headers = {**headers, "Accept-Encoding": "identity"}
        try:
            return await self._exchange(endpoint, url, headers, max_bytes)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            is_tls = isinstance(error, ssl.SSLError | aiohttp.ClientSSLError)
            phrase = "its TLS cannot be trusted" if is_tls else "it cannot be reached"
            text = str(error) or type(error).__name__
            text = cut_out(headers.get("Authorization", "").partition(" ")[2], text)
            text = cut_out(endpoint.password, text)
            # Not `from error`: the traceback would show the unredacted text.
            raise UnusableError(phrase, f"{phrase}: {text}") from None

    async def _exchange(
        self, endpoint: Endpoint, url: URL, headers: dict[str, str], max_bytes: int
    ) -> Reply:
        any_address = endpoint.private or is_address(url.host or "") or url.host == "localhost"
        session = self._sessions.get(not any_address)
        if session is None:
            session = _session(Resolver(self._look_ups, only_public=not any_address))
            self._sessions[not any_address] = session
        context = await self._context(endpoint)
        async with session.get(
            url, headers=headers, allow_redirects=False, ssl=context
        ) as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > max_bytes:
                    raise UnusableError(f"its answer is larger than {max_bytes} bytes")
            try:
                links = response.links
            except ValueError:
                raise UnusableError("its Link header names no URL") from None
            return Reply(response.status, response.headers, links, bytes(body))

    async def _context(self, endpoint: Endpoint) -> ssl.SSLContext | bool:
        if not endpoint.ca:
            return True
        return await self._loading.run(_context_of, endpoint.ca)


@lru_cache(MAX_CONTEXTS)
def _context_of(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca)


def _session(resolver: Resolver) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=resolver, use_dns_cache=False, limit=0, limit_per_host=MAX_CONNECTIONS
        ),
        timeout=TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )
