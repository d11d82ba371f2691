"""Images of the demo game of any size, built and pushed within milliseconds, without an engine."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import ssl
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpx

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
    entries: Sequence[Entry] = (),
    config: Mapping[str, object] | None = None,
    more: Sequence[bytes] = (),
    log_in: tuple[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> PushedImage:
    """Push the game, or another program, and further layers: `entries`, and a file each of `more`.

    `config` has what the image sets for its containers, instead of or beside the game's. Images
    share layers of equal content. `log_in` is a user name and a password.
    """
    game = program or compiled().read_bytes()
    data = replace(folder(b"data"), uid=1000, gid=1000)
    layers = [tar_of([Entry(b"game", content=game, mode=0o755), data])]
    layers += [tar_of(entries)] if entries else []
    layers += [tar_of_files({f"more-{number}": content}) for number, content in enumerate(more)]
    described = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/game"], "User": "1000:1000", **(config or {})},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
        "history": [{"created_by": "a test"} for _ in layers],
    }
    scheme = "http" if context is None else "https"
    with httpx.Client(
        base_url=f"{scheme}://{address}/v2/{repository}",
        auth=log_in,
        verify=context or False,
        timeout=_TIMEOUT,
        trust_env=False,
    ) as client:
        pushed = [_push(client, _LAYER, gzip.compress(layer, 1, mtime=0)) for layer in layers]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _push(client, _CONFIG, json.dumps(described).encode()),
            "layers": pushed,
        }
        content = json.dumps(manifest).encode()
        kind = {"Content-Type": _MANIFEST}
        client.put(f"/manifests/{tag}", content=content, headers=kind).raise_for_status()
    blobs = tuple(str(layer["digest"]) for layer in pushed)
    return PushedImage(repository, tag, _digest(content), address, blobs)


def push_game(address: str) -> PushedImage:
    """Push the game as an image like no other, whose containers `remove_traces` knows."""
    return push_image(address, "demo-game", more=[uuid.uuid4().bytes])


def _push(client: httpx.Client, media_type: str, content: bytes) -> dict[str, object]:
    """Push a blob; return its descriptor."""
    digest = _digest(content)
    place = client.post("/blobs/uploads/").raise_for_status().headers["Location"]
    client.put(f"{place}&digest={digest}", content=content).raise_for_status()
    return {"mediaType": media_type, "size": len(content), "digest": digest}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
