"""Images of the demo game of any size, built and pushed within milliseconds, without an engine."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import platform
import ssl
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tests.demo_game import Image, compiled
from tests.support.agent.tars import Entry, folder, tar_of, tar_of_files

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT = 30.0


@dataclass(frozen=True)
class PushedImage(Image):
    """An image in a registry, with the digests of its layers from the lowest."""

    layers: tuple[str, ...]

    def at(self, address: str) -> PushedImage:
        """Return the same image at another address of its registry."""
        return replace(self, address=address)


def push_image(
    address: str,
    repository: str,
    tag: str = "v1",
    *,
    program: bytes | None = None,
    entrypoint: str = "/game",
    more: Sequence[bytes] = (),
    log_in: tuple[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> PushedImage:
    """Push the game, or another program, and a layer with one file for each content of `more`.

    Images share layers of equal content. `log_in` is a user name and a password. An `entrypoint`
    that the image does not hold makes an image that cannot run.
    """
    content = program or compiled().read_bytes()
    data = replace(folder(b"data"), uid=1000, gid=1000)
    layers = [tar_of([Entry(b"game", content=content, mode=0o755), data])]
    layers += [tar_of_files({f"more-{number}": content}) for number, content in enumerate(more)]
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [entrypoint], "User": "1000:1000"},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
        "history": [{"created_by": "a test"} for _ in layers],
    }
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
    if context is not None:
        connection = http.client.HTTPSConnection(address, timeout=_TIMEOUT, context=context)
    try:
        to = _Pusher(connection, repository, log_in)
        pushed = [to.push_blob(_LAYER, gzip.compress(layer, 1, mtime=0)) for layer in layers]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": to.push_blob(_CONFIG, json.dumps(config).encode()),
            "layers": pushed,
        }
        digest = to.push_manifest(tag, json.dumps(manifest).encode())
    finally:
        connection.close()
    blobs = tuple(str(layer["digest"]) for layer in pushed)
    return PushedImage(repository, tag, digest, address, blobs)


def push_game(address: str) -> PushedImage:
    """Push the game as an image like no other, whose containers `remove_traces` knows."""
    return push_image(address, "demo-game", more=[uuid.uuid4().bytes])


class _Pusher:
    """Pushes to a repository by the distribution API."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        repository: str,
        log_in: tuple[str, str] | None,
    ) -> None:
        self._connection = connection
        self._base = f"/v2/{repository}"
        self._headers = {}
        if log_in is not None:
            secret = base64.b64encode(":".join(log_in).encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"

    def push_blob(self, media_type: str, content: bytes) -> dict[str, object]:
        """Push a blob; return its descriptor."""
        digest = _digest(content)
        where = urlsplit(self._ask("POST", f"{self._base}/blobs/uploads/", 202)["Location"])
        self._ask("PUT", f"{where.path}?{where.query}&digest={digest}", 201, content)
        return {"mediaType": media_type, "size": len(content), "digest": digest}

    def push_manifest(self, tag: str, content: bytes) -> str:
        """Push a manifest under a tag; return its digest."""
        path = f"{self._base}/manifests/{tag}"
        self._ask("PUT", path, 201, content, {"Content-Type": _MANIFEST})
        return _digest(content)

    def _ask(
        self,
        method: str,
        path: str,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPMessage:
        self._connection.request(method, path, body, {**self._headers, **(headers or {})})
        response = self._connection.getresponse()
        text = response.read()
        if response.status != status:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:300]!r}")
        return response.headers


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
