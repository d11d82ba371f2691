"""A client of the OCI distribution API: which tags are there, and which digest has one?"""

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from controlplane.errors import RegistryTimeoutError, RegistryUnavailableError
from controlplane.registries.endpoint import Endpoint, UnusableError
from controlplane.registries.http import RegistryHttp, Reply
from controlplane.registries.tag_lists import TagLists
from controlplane.storage.fleet_store import Registry

_log = logging.getLogger(__name__)

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json,"
    "application/vnd.oci.image.manifest.v1+json,"
    "application/vnd.docker.distribution.manifest.list.v2+json,"
    "application/vnd.docker.distribution.manifest.v2+json"
)
RESOLVE_TIMEOUT = 10.0
"""For all requests about one tag together: two, and a log-in for either."""

LIST_TIMEOUT = 10.0
"""For all pages of a list of tags together."""

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z", re.ASCII)
"""What can be a tag (OCI distribution specification)."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of a manifest, or of one page of a list of tags."""

PAGE_SIZE, MAX_PAGES = 1000, 20
"""Tags asked for at once, and pages read at most: a list of 20,000 tags serves nobody."""

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

    async def tags(self, registry: Registry, repository: str) -> Sequence[str]:
        """Read the tags of a repository, newest version first; none when it has no such one."""


def public_endpoint(registry: Registry) -> Endpoint:
    """Give where a registry is asked by anybody, without a name. Pure."""
    return Endpoint(
        address=_API_HOSTS.get(registry.address, registry.address),
        auth_hosts=_AUTH_HOSTS.get(registry.address, ()),
    )


class RegistryClient:
    """Asks registries."""

    def __init__(self, endpoint_of: Callable[[Registry], Endpoint] = public_endpoint) -> None:
        """Take what says where a registry is, and how to log in there."""
        self._endpoint_of = endpoint_of
        self._http = RegistryHttp()
        self._lists = TagLists(self._read_tags)

    async def start(self) -> None:
        """Open the connection pools."""
        await self._http.start()

    async def stop(self) -> None:
        """Close the connection pools, for good. Idempotent."""
        await self._lists.close()
        await self._http.stop()

    async def resolve(self, registry: Registry, repository: str, tag: str) -> str | None:
        """Return the digest that a tag names now, None when the registry has no such tag.

        Raises:
            RegistryUnavailableError: The registry fails or answers what cannot be used.
            RegistryTimeoutError: It does not answer in time.
        """
        with _told_of(registry):
            async with asyncio.timeout(RESOLVE_TIMEOUT):
                return await self._digest(registry, repository, tag)

    async def tags(self, registry: Registry, repository: str) -> Sequence[str]:
        """Read the tags of a repository, newest version first; none when it has no such one.

        What was read for another caller a moment ago is good for this one, too.

        Raises:
            RegistryUnavailableError: The registry fails or answers what cannot be used.
            RegistryTimeoutError: It does not answer in time.
        """
        return await self._lists.newest_first(registry, repository)

    async def _digest(self, registry: Registry, repository: str, tag: str) -> str | None:
        path = f"/v2/{repository}/manifests/{tag}"
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

    async def _read_tags(self, registry: Registry, repository: str) -> list[str]:
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
                    if len(found) > PAGE_SIZE * MAX_PAGES:
                        break
                    query = _next_query(reply, query)
                    if query is None:
                        return list(found)
            raise UnusableError("its list of tags is too long")

    async def _ask(
        self,
        registry: Registry,
        repository: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        return await self._http.ask(
            self._endpoint_of(registry),
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
        _log.warning("cannot ask registry %s: because %s", registry.name, error.detail)
        raise RegistryUnavailableError(registry.name, str(error)) from error
    except TimeoutError as error:
        _log.warning("cannot ask registry %s: because it did not answer in time", registry.name)
        raise RegistryTimeoutError(registry.name) from error


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
    if len(names) > PAGE_SIZE * MAX_PAGES:  # all in one page, as who ignores `n` answers
        raise UnusableError("its list of tags is too long")
    return [name for name in names if TAG.match(name)]


def _next_query(reply: Reply, query: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Give the query of the page that follows, None after the last.

    Of the `Link` only the query is used, since registries mark the place in different ways. Where
    else the link leads is not looked at: we ask the same registry for the same list.
    """
    target = reply.links.get("next")
    following = dict(target["url"].query) if target else None
    return None if following == query else following
