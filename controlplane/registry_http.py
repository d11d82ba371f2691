"""HTTP to registries: whom we ask, how we log in, and how much of an answer we read.

What a registry answers may come from somebody who wants to reach into our network, or to be given
credentials (section 3.4 of reliability.md). So nothing that it sends names a host that we go to,
but for the realm of its tokens, and that must be a host that the operator named:

- No redirect is followed; the realm is of the registry's own host and port, or of `auth_hosts`.
- A name must resolve to public addresses alone, unless the registry is `private` or the operator
  wrote an address. The connection goes to an address that was checked: there is no second lookup.
- Plain HTTP to loopback alone. Answers have a size, tokens and calls a time.
"""

import asyncio
import base64
import ipaddress
import json
import re
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from multidict import CIMultiDictProxy
from yarl import URL

TIMEOUT = aiohttp.ClientTimeout(total=5, connect=2)
"""Of one request, within the patience of a caller; a registry answers in milliseconds."""

MAX_TOKEN_BYTES = 64 * 1024
MAX_TOKENS = 1024
"""Of tokens kept, the oldest going first: one for each repository that is asked for."""

TOKEN_LIFETIME, TOKEN_MARGIN = 60.0, 10.0
"""Seconds that a token counts as good when its answer does not say, and that it is given less."""

_PARAMETER = re.compile(r'([A-Za-z_]+)=(?:"([^"]*)"|([^\s",]+))')
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class UnusableError(Exception):
    """What a registry answered, or where it would send us, cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a registry is and how to log in there.

    `address` is `host[:port]`; `auth_hosts`, of the same form, may be its realm; `ca` is the PEM
    text of certificate authorities to trust in place of the machine's.
    """

    address: str
    username: str = ""
    password: str = field(default="", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = ""

    @property
    def basic(self) -> str | None:
        """The header for a log-in by name and password."""
        if not self.username:
            return None
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that was read whole, as far as it may go."""

    status: int
    headers: CIMultiDictProxy[str]
    links: Mapping[str, Any]
    body: bytes


class RegistryHttp:
    """Owns the connections to registries, and the tokens that they gave."""

    def __init__(self) -> None:
        self._any: aiohttp.ClientSession | None = None
        self._public: aiohttp.ClientSession | None = None
        self._tokens: OrderedDict[tuple[Endpoint, str], tuple[str, float]] = OrderedDict()
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def start(self) -> None:
        """Open the connection pools."""
        self._any = _session(ThreadedResolver())
        self._public = _session(_PublicResolver())

    async def stop(self) -> None:
        """Close the connection pools. Idempotent."""
        for session in (self._any, self._public):
            if session is not None:
                await session.close()
        self._any = self._public = None

    async def ask(
        self,
        endpoint: Endpoint,
        method: str,
        path: str,
        *,
        scope: str,
        max_bytes: int,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Reply:
        """Send a request, logging in when the registry wants that.

        Raises:
            UnusableError: The answer is too large, or the registry wants a log-in that we have
                not or that leads elsewhere.
            TimeoutError: It does not answer in time.
            aiohttp.ClientError: It cannot be reached, or its answer is no HTTP.
        """
        url = _base(endpoint.address).with_path(path).with_query(params)
        headers = {"Accept": accept}
        known = self._token(endpoint, scope)
        if known is not None:
            headers["Authorization"] = known
        reply = await self._send(endpoint, method, url, headers, max_bytes)
        if reply.status != 401:
            return reply
        headers["Authorization"] = await self._log_in(endpoint, scope, reply)
        return await self._send(endpoint, method, url, headers, max_bytes)

    async def _log_in(self, endpoint: Endpoint, scope: str, refusal: Reply) -> str:
        """Give the header that the registry asks for."""
        self._tokens.pop((endpoint, scope), None)
        wanted: dict[str, dict[str, str]] = {}
        for challenge in refusal.headers.getall("WWW-Authenticate", []):
            scheme, _, rest = challenge.partition(" ")
            found = {name.lower(): a or b for name, a, b in _PARAMETER.findall(rest)}
            wanted.setdefault(scheme.lower(), found)
        if "bearer" in wanted:
            return await self._fetch_token(endpoint, scope, wanted["bearer"])
        if "basic" not in wanted or endpoint.basic is None:
            raise UnusableError("it wants a log-in, and none is configured")
        return endpoint.basic

    async def _fetch_token(
        self, endpoint: Endpoint, scope: str, challenge: Mapping[str, str]
    ) -> str:
        realm = _checked_realm(endpoint, challenge.get("realm", ""))
        query = {"service": challenge["service"]} if "service" in challenge else {}
        headers = {"Accept": "application/json"}
        if endpoint.basic is not None:
            headers["Authorization"] = endpoint.basic
        url = realm.update_query(query | {"scope": scope})
        reply = await self._send(endpoint, "GET", url, headers, MAX_TOKEN_BYTES)
        if reply.status != 200:
            raise UnusableError(f"its token service answered {reply.status}")
        try:
            answer = json.loads(reply.body)
            token = answer.get("token") or answer["access_token"]
            lifetime = float(answer.get("expires_in") or TOKEN_LIFETIME)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise UnusableError("its token service answered no token") from None
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token, re.ASCII):
            raise UnusableError("its token service answered no token")
        self._keep(endpoint, scope, f"Bearer {token}", lifetime)
        return f"Bearer {token}"

    def _token(self, endpoint: Endpoint, scope: str) -> str | None:
        header, until = self._tokens.get((endpoint, scope), (None, 0.0))
        return header if asyncio.get_running_loop().time() < until else None

    def _keep(self, endpoint: Endpoint, scope: str, header: str, lifetime: float) -> None:
        until = asyncio.get_running_loop().time() + lifetime - TOKEN_MARGIN
        self._tokens[endpoint, scope] = header, until
        while len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)

    async def _send(
        self, endpoint: Endpoint, method: str, url: URL, headers: dict[str, str], max_bytes: int
    ) -> Reply:
        free = endpoint.private or _is_address(url.host or "") or url.host == "localhost"
        session = self._any if free else self._public
        assert session is not None, "start() comes first"
        headers = {**headers, "Accept-Encoding": "identity"}
        async with session.request(
            method, url, headers=headers, allow_redirects=False, ssl=self._context(endpoint)
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

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext | bool:
        if not endpoint.ca:
            return True
        if endpoint.ca not in self._contexts:
            self._contexts[endpoint.ca] = ssl.create_default_context(cadata=endpoint.ca)
        return self._contexts[endpoint.ca]


class _PublicResolver(AbstractResolver):
    """Resolves names whose addresses are all public, and no other."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            if not is_public(result["host"]):
                raise OSError(None, f"{host} resolves to {result['host']}, which is not public")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def is_public(address: str) -> bool:
    """Tell whether an address belongs to a host of the public internet. Pure."""
    ip: Any = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6 and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    elif ip.version == 6 and ip in _NAT64:
        ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return bool(ip.is_global and not ip.is_multicast)


def _session(resolver: AbstractResolver) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False),
        timeout=TIMEOUT,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def _checked_realm(endpoint: Endpoint, realm: str) -> URL:
    """Refuse a realm that is not of the registry's own host, or of one that the operator named."""
    try:
        url = URL(realm)
        named = (url.scheme, url.host, url.port)
    except ValueError:
        raise UnusableError("its realm is no URL") from None
    allowed = [_base(host) for host in (endpoint.address, *endpoint.auth_hosts)]
    if named not in [(base.scheme, base.host, base.port) for base in allowed]:
        raise UnusableError(f"its realm {url.host!r} is neither its own host nor in auth_hosts")
    return url.with_user(None).with_fragment(None)


def _base(address: str) -> URL:
    """Give the URL of `host[:port]`; plain HTTP only to loopback."""
    host = URL(f"//{address}").host or ""
    loopback = host == "localhost" or (
        _is_address(host) and ipaddress.ip_address(host).is_loopback
    )
    return URL(f"{'http' if loopback else 'https'}://{address}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
