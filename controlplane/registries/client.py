"""OCI distribution API client: lists tags and resolves them to digests."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

from controlplane.admission.request_slots import release_request_slot
from controlplane.domain.applications.images import UNKNOWN, Command, ImageConfig
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import RegistryTimeoutError, RegistryUnavailableError
from controlplane.domain.json_reader import count_values
from controlplane.registries.endpoint import Endpoint, UnusableError
from controlplane.registries.http import MAX_CONNECTIONS, RegistryHttp, Reply
from controlplane.registries.manifests import (
    IMAGE_TYPES,
    INDEX_TYPES,
    Checked,
    check_manifest,
    digest_of,
    is_named_by,
    read_config,
)
from controlplane.registries.tag_lists import TagLists
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.fair_queue import FairSlots
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

RESOLVE_TIMEOUT = LIST_TIMEOUT = 10.0
"""Total seconds for all requests for one tag, or for all pages of a tag list."""

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z", re.ASCII)
"""Valid tags (OCI distribution specification)."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024  # Of a manifest, or of one page of a tag list
PAGE_SIZE = 1000  # Requested tags per page
MAX_LIST_TAGS = 20_000  # Of all pages; the registry chooses the size of its pages
MAX_LIST_BYTES = 8 * 1024 * 1024  # Of all pages of a tag list

MAX_LIST_VALUES = 200_000
"""JSON values in all pages: 4 MiB of empty lists would block the event loop for half a second.

A tag is one value; some registries also list each manifest, about twelve values.
"""

_MANIFESTS = ",".join((*INDEX_TYPES, *IMAGE_TYPES))

DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


class ResolvedTag(NamedTuple):
    """The current image of a tag.

    `size_bytes`: of its compressed layers; of a list of images, the size of the largest.
    `platforms` are those that it is for, UNKNOWN among them if one could not be read; `command` is
    what it executes, of a list that of the first image.
    """

    digest: str
    size_bytes: int
    platforms: tuple[str, ...] = ()
    command: Command = Command.UNKNOWN


class RegistryClient:
    """Resolves and lists tags of the configured registries."""

    def __init__(
        self, endpoint_of: Callable[[Registry], Endpoint], clock: Clock, *, max_image_bytes: int
    ) -> None:
        self._endpoint_of = endpoint_of
        self._max_image_bytes = max_image_bytes
        self._http = RegistryHttp(clock)
        self._slots: WeakValueDictionary[str, FairSlots] = WeakValueDictionary()
        """Calls of each registry, by its address, of which an account has a share."""
        self._lists = TagLists(self._read_tags)

    async def close(self) -> None:
        """Close the connection pools. Idempotent."""
        await self._lists.close()
        await self._http.close()

    async def resolve(
        self, registry: Registry, repository: str, tag: str, *, account: str
    ) -> ResolvedTag | None:
        """Return the current image of a tag, None if the registry has no such tag.

        Checks its manifest, and each manifest of a list. `account` is whose call it is.

        Raises:
            ImageRefusedError: The image may not be pulled.
            RegistryUnavailableError: The registry fails or sends an invalid response.
            RegistryTimeoutError: No answer in time.
        """
        release_request_slot()
        with _translated(registry):
            async with asyncio.timeout(RESOLVE_TIMEOUT), self._slots_of(registry).hold(account):
                return await self._resolve(registry, repository, tag)

    async def tags(self, registry: Registry, repository: str, account: str) -> Sequence[str]:
        """Return the tags of a repository, newest version first; empty if there is no repository.

        Results are cached briefly, for all accounts; `account` is whose call it is.

        Raises:
            RegistryUnavailableError: The registry fails or sends an invalid response.
            RegistryTimeoutError: No answer in time.
        """
        return await self._lists.newest_first(registry, repository, account)

    def _slots_of(self, registry: Registry) -> FairSlots:
        slots = self._slots.get(registry.address)
        if slots is None:
            slots = FairSlots(lambda: MAX_CONNECTIONS)
            self._slots[registry.address] = slots
        return slots

    async def _resolve(self, registry: Registry, repository: str, tag: str) -> ResolvedTag | None:
        reply = await self._manifest(registry, repository, tag)
        if reply is None:
            return None
        checked = check_manifest(reply.body, _type_of(reply), self._max_image_bytes)
        digest = digest_of(reply.body)
        if checked.config:
            config = await self._config(registry, repository, checked.config)
            return ResolvedTag(digest, checked.size_bytes, (config.platform,), config.command)
        size = 0
        platforms: list[str] = []
        command: Command | None = None
        for listed, named in checked.listed.items():
            variant = await self._variant(registry, repository, listed)
            size = max(size, variant.size_bytes)
            platform = named
            if command is None or named == UNKNOWN:
                config = await self._config(registry, repository, variant.config)
                command = config.command if command is None else command
                platform = named or config.platform
            platforms.append(platform)
        found = tuple(dict.fromkeys(platforms))
        return ResolvedTag(digest, size, found, command or Command.UNKNOWN)

    async def _variant(self, registry: Registry, repository: str, listed: str) -> Checked:
        """Read and check an image that a list names."""
        image = await self._manifest(registry, repository, listed)
        if image is None or not is_named_by(listed, image.body):
            raise UnusableError("it lacks an image that its list names")
        kind = _type_of(image)
        return check_manifest(image.body, kind, self._max_image_bytes, is_listed=True)

    async def _config(self, registry: Registry, repository: str, digest: str) -> ImageConfig:
        """Read the config of an image; nothing is known if the registry does not send it.

        Many registries send blobs from elsewhere, which this client does not follow.

        Raises:
            ImageRefusedError: The image is not for Linux.
        """
        path = f"/v2/{repository}/blobs/{digest}"
        try:
            reply = await self._ask(registry, repository, path, accept="*/*")
            if reply.status == 200 and is_named_by(digest, reply.body):
                return read_config(reply.body)
        except (UnusableError, TimeoutError) as error:
            log.info(
                "cannot read the config of an image", registry=registry.name, error=str(error)
            )
        return ImageConfig(UNKNOWN, Command.UNKNOWN)

    async def _manifest(self, registry: Registry, repository: str, reference: str) -> Reply | None:
        path = f"/v2/{repository}/manifests/{reference}"
        reply = await self._ask(registry, repository, path, accept=_MANIFESTS)
        if not _exists(reply):
            return None
        named = reply.headers.get("Docker-Content-Digest")
        if named is not None and not is_named_by(named, reply.body):
            raise UnusableError("its manifest does not match its digest")
        return reply

    async def _read_tags(self, registry: Registry, repository: str, account: str) -> list[str]:
        path = f"/v2/{repository}/tags/list"
        query: Mapping[str, str] | None = {"n": str(PAGE_SIZE)}
        found: dict[str, None] = {}
        is_first = True
        size = values = 0
        with _translated(registry):
            async with asyncio.timeout(LIST_TIMEOUT), self._slots_of(registry).hold(account):
                while True:
                    reply = await self._ask(registry, repository, path, query=query)
                    if not _exists(reply):
                        if is_first:
                            return []
                        raise UnusableError("it lacks a page of its list of tags")
                    is_first = False
                    size += len(reply.body)
                    values += count_values(reply.body)
                    if size > MAX_LIST_BYTES or values > MAX_LIST_VALUES:
                        break
                    before = len(found)
                    found |= dict.fromkeys(_names(reply))
                    if len(found) > MAX_LIST_TAGS:
                        break
                    query = _next_query(reply, query)
                    # A registry that ignores the position sends the same page again and again.
                    if query is None or len(found) == before:
                        return [name for name in found if TAG.match(name)]
            raise UnusableError("its list of tags is too long")

    async def _ask(
        self,
        registry: Registry,
        repository: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Reply:
        return await self._http.ask(
            self._endpoint_of(registry),
            path,
            scope=f"repository:{repository}:pull",
            max_bytes=MAX_ANSWER_BYTES,
            params=query,
            accept=accept,
        )


@contextmanager
def _translated(registry: Registry) -> Iterator[None]:
    """Log a failure and raise the error for the caller."""
    try:
        yield
    except UnusableError as error:
        log.warning("cannot ask a registry", registry=registry.name, error=error.detail)
        raise RegistryUnavailableError(registry.name, str(error)) from error
    except TimeoutError as error:
        log.warning("a registry did not answer in time", registry=registry.name)
        raise RegistryTimeoutError(registry.name) from error


def _type_of(reply: Reply) -> str:
    return reply.headers.get("Content-Type", "")


def _exists(reply: Reply) -> bool:
    if reply.status not in {200, 404}:
        raise UnusableError(f"it answered {reply.status}")
    return reply.status == 200


def _names(reply: Reply) -> list[str]:
    try:
        names = json.loads(reply.body)["tags"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnusableError("its list of tags is malformed") from None
    names = [] if names is None else names  # empty repository
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnusableError("its list of tags is malformed")
    if len(names) > MAX_LIST_TAGS:  # the registry ignores `n` and sends one page
        raise UnusableError("its list of tags is too long")
    return names


def _next_query(reply: Reply, query: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the query of the next page, None after the last.

    Registries mark the position in different ways, so the whole query of the `Link` is used; its
    host and path are ignored.
    """
    target = reply.links.get("next")
    following = dict(target["url"].query) if target else None
    return None if following == query else following
