"""A small client of the OCI distribution API: which digest does a tag name?

Anonymous. Plain HTTP only to loopback, HTTPS to everything else; no redirect is followed, so no
request goes to a host that the operator did not name.
"""

import hashlib
import ipaddress
import re
from typing import Protocol

import aiohttp

from controlplane.errors import RegistryTimeoutError, RegistryUnavailableError
from controlplane.fleet_store import Registry

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json,"
    "application/vnd.oci.image.manifest.v1+json,"
    "application/vnd.docker.distribution.manifest.list.v2+json,"
    "application/vnd.docker.distribution.manifest.v2+json"
)
TIMEOUT = aiohttp.ClientTimeout(total=5, connect=2)
"""Within the patience of a caller of POST …/tags; a registry answers in milliseconds."""

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class TagResolver(Protocol):
    """What `tags.py` needs of a registry."""

    async def resolve(self, registry: Registry, repository: str, tag: str) -> str | None:
        """Return the digest that a tag names now, None when the registry has no such tag."""


class RegistryClient:
    """Asks registries over HTTP."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, cookie_jar=aiohttp.DummyCookieJar())

    async def stop(self) -> None:
        """Close the connection pool. Idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def resolve(self, registry: Registry, repository: str, tag: str) -> str | None:
        """Return the digest that a tag names now, None when the registry has no such tag.

        Raises:
            RegistryUnavailableError: The registry fails or answers what cannot be used.
            RegistryTimeoutError: It does not answer in time.
        """
        url = f"{_scheme(registry.address)}://{registry.address}/v2/{repository}/manifests/{tag}"
        try:
            digest = await self._digest_by_head(url)
            if digest is not None:
                return digest
            return await self._digest_by_get(url)
        except _UnknownTagError:
            return None
        except _UnusableError as error:
            raise RegistryUnavailableError(registry.name, str(error)) from error
        except TimeoutError as error:
            raise RegistryTimeoutError(registry.name) from error
        except aiohttp.ClientError as error:
            raise RegistryUnavailableError(registry.name, str(error)) from error

    async def _digest_by_head(self, url: str) -> str | None:
        async with self._request("HEAD", url) as response:
            if response.status == 405:
                return None
            _check_status(response.status)
            digest = response.headers.get("Docker-Content-Digest")
            return digest if digest and _DIGEST.match(digest) else None

    async def _digest_by_get(self, url: str) -> str:
        async with self._request("GET", url) as response:
            _check_status(response.status)
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > MAX_MANIFEST_BYTES:
                    raise _UnusableError("its manifest is larger than 4 MiB")
            return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def _request(self, method: str, url: str) -> aiohttp.client._RequestContextManager:
        assert self._session is not None, "start() comes first"
        headers = {"Accept": MANIFEST_TYPES, "Accept-Encoding": "identity"}
        return self._session.request(method, url, headers=headers, allow_redirects=False)


class _UnknownTagError(Exception):
    pass


class _UnusableError(Exception):
    pass


def _check_status(status: int) -> None:
    if status == 404:
        raise _UnknownTagError
    if status != 200:
        raise _UnusableError(f"it answered {status}")


def _scheme(address: str) -> str:
    host = address.rpartition(":")[0] if ":" in address else address
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return "http" if loopback else "https"
