"""A client of the OCI distribution API: which tags are there, and which digest has one?"""

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import aiohttp

from controlplane.errors import RegistryTimeoutError, RegistryUnavailableError
from controlplane.fleet_store import Registry
from controlplane.registry_http import Endpoint, RegistryHttp, Reply, UnusableError

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json,"
    "application/vnd.oci.image.manifest.v1+json,"
    "application/vnd.docker.distribution.manifest.list.v2+json,"
    "application/vnd.docker.distribution.manifest.v2+json"
)
LIST_TIMEOUT = 10.0
"""For all pages of a list of tags together."""

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z", re.ASCII)
"""What can be a tag (OCI distribution specification)."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of a manifest, or of one page of a list of tags."""

PAGE_SIZE, MAX_PAGES = 1000, 100
"""Tags asked for at once, and pages read at most: a list of 100,000 tags serves nobody."""

DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
_API_HOSTS = dict.fromkeys(DOCKER_HUB, "registry-1.docker.io")
_AUTH_HOSTS = dict.fromkeys(DOCKER_HUB, ("auth.docker.io",)) | {
    "registry.gitlab.com": ("gitlab.com",)
}
"""Where well-known registries are asked, and where they have their tokens made."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class TagResolver(Protocol):
    """What `tags.py` needs of a registry."""

    async def resolve(self, registry: Registry, repository: str, tag: str) -> str | None:
        """Return the digest that a tag names now, None when the registry has no such tag."""

    async def tags(self, registry: Registry, repository: str) -> list[str]:
        """Read the tags of a repository in the registry's order; none when it has no such one."""


class RegistryClient:
    """Asks registries."""

    def __init__(self) -> None:
        self._http = RegistryHttp()

    async def start(self) -> None:
        """Open the connection pools."""
        await self._http.start()

    async def stop(self) -> None:
        """Close the connection pools. Idempotent."""
        await self._http.stop()

    async def resolve(self, registry: Registry, repository: str, tag: str) -> str | None:
        """Return the digest that a tag names now, None when the registry has no such tag.

        Raises:
            RegistryUnavailableError: The registry fails or answers what cannot be used.
            RegistryTimeoutError: It does not answer in time.
        """
        path = f"/v2/{repository}/manifests/{tag}"
        with _told_of(registry):
            reply = await self._ask(registry, repository, "HEAD", path)
            if reply.status != 405:
                if not _found(reply):
                    return None
                digest = reply.headers.get("Docker-Content-Digest", "")
                if _DIGEST.match(digest):
                    return digest
            reply = await self._ask(registry, repository, "GET", path)
            if not _found(reply):
                return None
            return f"sha256:{hashlib.sha256(reply.body).hexdigest()}"

    async def tags(self, registry: Registry, repository: str) -> list[str]:
        """Read the tags of a repository in the registry's order; none when it has no such one.

        Raises:
            RegistryUnavailableError: The registry fails or answers what cannot be used.
            RegistryTimeoutError: It does not answer in time.
        """
        path = f"/v2/{repository}/tags/list"
        query: Mapping[str, str] | None = {"n": str(PAGE_SIZE)}
        found: dict[str, None] = {}
        with _told_of(registry):
            async with asyncio.timeout(LIST_TIMEOUT):
                for _ in range(MAX_PAGES):
                    reply = await self._ask(registry, repository, "GET", path, query)
                    if not _found(reply):
                        return []
                    found |= dict.fromkeys(_names(reply))
                    query = _next_query(reply, query)
                    if query is None:
                        return list(found)
            raise UnusableError(f"its list of tags has more than {MAX_PAGES} pages")

    async def _ask(
        self,
        registry: Registry,
        repository: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        return await self._http.ask(
            _endpoint(registry),
            method,
            path,
            scope=f"repository:{repository}:pull",
            max_bytes=MAX_ANSWER_BYTES,
            params=query,
            accept=MANIFEST_TYPES if "/manifests/" in path else "application/json",
        )


@contextmanager
def _told_of(registry: Registry) -> Iterator[None]:
    """Say of a failure which registry it was."""
    try:
        yield
    except UnusableError as error:
        raise RegistryUnavailableError(registry.name, str(error)) from error
    except TimeoutError as error:
        raise RegistryTimeoutError(registry.name) from error
    except aiohttp.ClientError as error:
        raise RegistryUnavailableError(registry.name, str(error)) from error


def _endpoint(registry: Registry) -> Endpoint:
    return Endpoint(
        address=_API_HOSTS.get(registry.address, registry.address),
        auth_hosts=_AUTH_HOSTS.get(registry.address, ()),
    )


def _found(reply: Reply) -> bool:
    if reply.status not in {200, 404}:
        raise UnusableError(f"it answered {reply.status}")
    return reply.status == 200


def _names(reply: Reply) -> list[str]:
    try:
        names = json.loads(reply.body)["tags"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnusableError("its list of tags is none") from None
    names = [] if names is None else names  # as an empty repository answers
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnusableError("its list of tags is none")
    return [name for name in names if TAG.match(name)]


def _next_query(reply: Reply, query: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Give the query of the page that follows, None after the last.

    Of the `Link` only the query is used, since registries mark the place in different ways. Where
    else the link leads is not looked at: we ask the same registry for the same list.
    """
    target = reply.links.get("next")
    following = dict(target["url"].query) if target else None
    return None if following == query else following
