"""A registry over real HTTP that fails on demand."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from controlplane.registries.manifests import digest_of

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def blob(kind: str, content: str = "", **more: Any) -> dict[str, Any]:
    """Make the descriptor of a blob."""
    return {"mediaType": kind, "digest": digest_of(content.encode()), "size": 7, **more}


def image(content: str = "", **more: Any) -> dict[str, Any]:
    """Make a manifest of an image of one layer."""
    parts = {"config": blob(CONFIG, content), "layers": [blob(LAYER, content)]}
    return {"schemaVersion": 2, "mediaType": IMAGE, **parts, **more}


def config(
    system: str = "linux",
    architecture: str = "amd64",
    execution: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Make an image's config. `execution`: its entry point and command, by default a program."""
    executed = {"Entrypoint": ["/game"]} if execution is None else execution
    return {"os": system, "architecture": architecture, "config": executed}


def index(*manifests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make an image index."""
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(manifests), **more}


class FakeRegistry:
    """Serves tags of repositories; `status` fails every answer, `hangs` withholds it.

    With `hides` it acts as Docker Hub: it requires a token, gives one to anyone, and answers 401
    for missing repositories. `token_status` is the answer of its token service, as of ghcr.io.
    """

    def __init__(self) -> None:
        self.tags: dict[tuple[str, str], str] = {}
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        """Content and type, by repository and digest."""
        self.blobs: dict[str, bytes] = {}  # By digest, of any repository; 404 for others
        self.blob_status = 200
        self.header_digest: str | None = None  # Replaces the digest in the header; empty omits it
        self.status = 200
        self.hangs = False
        self.hangs_on = ""  # A reference whose manifest request gets no answer
        self.hides = False
        self.token_status = 200
        self.asked: list[str] = []  # The paths of all requests
        self.page_size = 1000
        self.heeds_n = True
        self.list_body: str | None = None
        self.link = '<http://192.0.2.9/v2/elsewhere?last={last}&n={n}>; rel="next"'
        self.later_status = 200  # Of the pages of a list after the first
        self.listed = 0  # How often `list_body` was asked for: `{page}` in `link`
        self.address = ""
        self._answering = asyncio.Event()
        self._runner: web.AppRunner | None = None

    def push(self, repository: str, tag: str, content: str = "") -> str:
        """Add a tag, or move it to a new image; return the digest."""
        return self.push_manifest(repository, tag, image(f"{repository}:{tag}{content}"))

    def with_config(self, content: Any, **more: Any) -> dict[str, Any]:
        """Add a config, and make a manifest of an image with it."""
        text = content if isinstance(content, str) else json.dumps(content)
        descriptor = blob(CONFIG, text)
        self.blobs[descriptor["digest"]] = text.encode()
        return image(config=descriptor, **more)

    def push_manifest(self, repository: str, tag: str, manifest: Any, kind: str = "") -> str:
        """Add a manifest by its digest and optionally a tag; return the digest."""
        content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        digest = digest_of(content)
        kind = kind or manifest["mediaType"]
        self.manifests[repository, digest] = content, kind
        if tag:
            self.tags[repository, tag] = digest
        return digest

    async def start(self) -> None:
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/token", self._token)
        app.router.add_route("*", "/v2/{repository:.+}/manifests/{reference}", self._manifest)
        app.router.add_get("/v2/{repository:.+}/tags/list", self._list)
        app.router.add_get("/v2/{repository:.+}/blobs/{digest}", self._blob)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    def answer_again(self) -> None:
        """Answer the requests that hang, and hang no more."""
        self._answering.set()

    async def stop(self) -> None:
        self.answer_again()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _note(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.asked.append(request.path)
        response = await handler(request)
        if self.hides and request.path != "/token":
            anonymous = request.headers.get("Authorization") != "Bearer t"
            if anonymous or response.status == 404:
                challenge = f'Bearer realm="http://{self.address}/token"'
                return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return response

    async def _token(self, request: web.Request) -> web.Response:
        return web.json_response({"token": "t"}, status=self.token_status)

    async def _list(self, request: web.Request) -> web.Response:
        if self.hangs:
            await self._answering.wait()
        if self.status != 200:
            return web.Response(status=self.status)
        if self.list_body is not None:
            self.listed += 1
            link = self.link.replace("{page}", str(self.listed))
            return web.Response(text=self.list_body, headers={"Link": link})
        repository = request.match_info["repository"]
        last = request.query.get("last", "")
        tags = sorted(tag for name, tag in self.tags if name == repository and tag > last)
        asked = int(request.query["n"]) if self.heeds_n else self.page_size
        size = min(self.page_size, asked)
        if not tags and not last:
            return web.Response(status=404)
        if last and self.later_status != 200:
            return web.Response(status=self.later_status)
        headers = {}
        if len(tags) > size:
            headers["Link"] = self.link.format(last=tags[size - 1], n=request.query["n"])
        return web.json_response({"name": repository, "tags": tags[:size]}, headers=headers)

    async def _manifest(self, request: web.Request) -> web.Response:
        if self.hangs or request.match_info["reference"] == self.hangs_on:
            await self._answering.wait()
        if self.status != 200:
            return web.Response(status=self.status, headers={"Location": "http://192.0.2.9/"})
        repository = request.match_info["repository"]
        reference = request.match_info["reference"]
        digest = self.tags.get((repository, reference), reference)
        if (repository, digest) not in self.manifests:
            return web.Response(status=404)
        content, kind = self.manifests[repository, digest]
        shown = digest if self.header_digest is None else self.header_digest
        headers = {"Content-Type": kind} | ({"Docker-Content-Digest": shown} if shown else {})
        return web.Response(body=content, headers=headers)

    async def _blob(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        if digest == self.hangs_on:
            await self._answering.wait()
        if self.blob_status != 200 or digest not in self.blobs:
            status = 404 if self.blob_status == 200 else self.blob_status
            return web.Response(status=status, headers={"Location": "http://192.0.2.9/"})
        return web.Response(body=self.blobs[digest])
