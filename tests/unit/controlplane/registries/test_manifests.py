"""Manifests: which are accepted, and how arbitrary input is handled."""

import hashlib
import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import ImageRefusedError
from controlplane.registries.endpoint import UnusableError
from controlplane.registries.manifests import (
    MAX_CONFIG_BYTES,
    MAX_IMAGES,
    MAX_LAYERS,
    check_manifest,
    digest_of,
    is_named_by,
)
from tests.support.controlplane import fake_registry
from tests.support.controlplane.fake_registry import IMAGE, INDEX, LAYER, blob, image, index

CONFIG = fake_registry.CONFIG
LIMIT = 10**9
DOCKER_IMAGE = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"
LINUX = {"os": "linux", "architecture": "amd64"}
ELSEWHERE = ["https://elsewhere.example/layer"]


def check(manifest: Any, kind: str | None = None) -> tuple[str, ...]:
    """Return the digests that a manifest lists."""
    content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    said = manifest.get("mediaType") if isinstance(manifest, dict) else None
    kind = kind if kind is not None else said or IMAGE
    return tuple(check_manifest(content, kind, LIMIT).listed)


def layers(*made: dict[str, Any]) -> dict[str, Any]:
    return image(layers=list(made))


def entry(number: int = 0, platform: Any = LINUX, kind: str = IMAGE, **more: Any) -> Any:
    """Return an image's descriptor in a list."""
    return blob(kind, str(number), platform=platform, **more)


def without(manifest: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name not in names}


def test_size_of_an_image_is_the_sum_of_its_compressed_parts() -> None:
    manifest = image(
        config=blob(CONFIG, size=3), layers=[blob(LAYER, size=40), blob(LAYER, size=5)]
    )
    assert check_manifest(json.dumps(manifest).encode(), IMAGE, LIMIT).size_bytes == 48


@pytest.mark.parametrize(
    ("manifest", "kind"),
    [
        (image(), IMAGE),
        (image(), f"{IMAGE}; charset=utf-8"),
        (without(image(), "mediaType"), IMAGE),
        (image(mediaType=DOCKER_IMAGE), DOCKER_IMAGE),
        (image(config=blob(DOCKER_CONFIG), layers=[blob(DOCKER_LAYER)]), IMAGE),
        (layers(), IMAGE),
        (layers(*[blob(LAYER)] * MAX_LAYERS), IMAGE),
        (layers(blob(LAYER.removesuffix("+gzip")), blob(LAYER.replace("gzip", "zstd"))), IMAGE),
        (layers(blob(DOCKER_LAYER.removesuffix(".gzip"))), IMAGE),
        (layers(blob(LAYER, urls=[]), blob(LAYER, urls=None)), IMAGE),
        (layers(blob(LAYER, size=0), blob(LAYER, size=LIMIT - 7)), IMAGE),
        (layers(blob(LAYER) | {"digest": "sha512:" + "a" * 128}), IMAGE),
        (image(config=blob(CONFIG, size=MAX_CONFIG_BYTES)), IMAGE),
        (image(annotations={"Layers": "x", "URLS": "y"}, subject=blob(IMAGE)), IMAGE),
        (image(manifests=None, fsLayers=None, unknown=[{"urls": ELSEWHERE}]), IMAGE),
    ],
)
def test_accepts_an_image(manifest: dict[str, Any], kind: str) -> None:
    assert check(manifest, kind) == ()
    check_manifest(json.dumps(manifest).encode(), kind, LIMIT, is_listed=True)


@pytest.mark.parametrize(
    ("manifest", "reported"),
    [
        (layers(blob(LAYER), blob(LAYER, urls=ELSEWHERE)), "outside the registry"),
        (image(config=blob(CONFIG, urls=ELSEWHERE)), "outside the registry"),
        (
            layers(blob("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")),
            "outside the registry",
        ),
        (
            layers(blob("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip")),
            "outside the registry",
        ),
        (layers(*[blob(LAYER)] * (MAX_LAYERS + 1)), "126 layers; a host can mount 125"),
        (layers(blob(LAYER, size=LIMIT)), "1000000007 bytes; at most 1000000000"),
        (layers(*[blob(LAYER, size=LIMIT // 2)] * 2), "1000000007 bytes; at most 1000000000"),
        (layers(blob(LAYER, size=2**63 - 1), blob(LAYER, size=2**63 - 1)), "at most 1000000000"),
        (image(config=blob(CONFIG, size=MAX_CONFIG_BYTES + 1)), "config of more than"),
        (layers(blob("application/vnd.in-toto+json")), "layer that is not one"),
        (layers(blob(LAYER + "+encrypted")), "layer that is not one"),
        (layers(blob(f"{LAYER}\n")), "layer that is not one"),
        (image(config=blob("application/vnd.cncf.helm.config.v1+json")), "not a container image"),
        (image(config=blob("application/vnd.oci.empty.v1+json")), "not a container image"),
        (without(image(), "config"), "not a container image"),
        (without(image(), "layers"), "not a container image"),
        ({"schemaVersion": 2, "mediaType": IMAGE}, "not a container image"),
        (index(entry(), mediaType=IMAGE), "not a container image"),
        (image(mediaType=SCHEMA_1, schemaVersion=1), "older than schema 2"),
        (image(fsLayers=[]), "older than schema 2"),
        (image(schemaVersion=3), "older than schema 2"),
        (image(manifests=[]), "image and a list of images at once"),
        (index(entry(), layers=[]), "image and a list of images at once"),
        (index(entry(), config=blob(CONFIG)), "image and a list of images at once"),
        ([], "malformed: the manifest"),
        (b"7", "malformed: the manifest"),
        (without(image(), "schemaVersion"), "malformed: schemaVersion: Field required"),
        (image(schemaVersion="2"), "malformed: schemaVersion"),
        (image(schemaVersion=True), "malformed: schemaVersion"),
        (image(layers={}), "malformed: layers"),
        (image(config=[]), "malformed: config"),
        (layers(blob(LAYER), blob(LAYER, size=-1)), r"malformed: layers\[1\]\.size: "),
        (layers(blob(LAYER, size=True)), r"malformed: layers\[0\]\.size: "),
        (layers(blob(LAYER, size="7")), r"malformed: layers\[0\]\.size: "),
        (layers(blob(LAYER, size=1.5)), r"malformed: layers\[0\]\.size: "),
        (layers(without(blob(LAYER), "size")), r"malformed: layers\[0\]\.size: Field required"),
        (layers(blob(LAYER, urls="https://x")), r"malformed: layers\[0\]\.urls: "),
        (layers(blob(LAYER) | {"digest": ""}), r"layers\[0\]\.digest: is not a digest"),
        (layers(blob(LAYER) | {"digest": "sha256:" + "A" * 64}), "is not a digest"),
        (layers(blob(LAYER) | {"digest": "sha256:" + "a" * 64 + "\n"}), "is not a digest"),
        (layers(blob(LAYER) | {"digest": "sha256:../" + "a" * 61}), "is not a digest"),
        (layers(blob(LAYER) | {"digest": "md5:" + "a" * 32}), "is not a digest"),
    ],
)
def test_refuses_unsupported_images(manifest: Any, reported: str) -> None:
    with pytest.raises(ImageRefusedError, match=reported):
        check(manifest)


@pytest.mark.parametrize(
    "manifest",
    [
        layers(blob(LAYER) | {"Urls": ELSEWHERE}),
        layers(blob(LAYER, urls=[]) | {"URL\u017f": ELSEWHERE}),  # case folding makes it an s
        index(entry() | {"url\u017f": ELSEWHERE}),
        image(Layers=[]),
        {**image(), "layer\u017f": []},
        image(CONFIG={}),
        image(mediatype=INDEX),
        image(schemaversion=1),
        image(Manifests=[]),
        image(fslayers=[]),
        index(entry(platform={"OS": "windows"})),
        index(entry(Platform={"os": "windows"})),
        index(entry(Digest="sha256:" + "0" * 64)),
    ],
)
def test_refuses_a_known_field_in_another_case(manifest: Any) -> None:
    """For Go, and so for Docker, it is the same field, and the last one wins."""
    with pytest.raises(ImageRefusedError, match="field in another case"):
        check(manifest)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>log in</html>",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"schemaVersion":2}x',
        b'{"schemaVersion":2,"schemaVersion":1}',
        b'{"schemaVersion":NaN}',
        b'{"schemaVersion":1e999}',
        b'{"schemaVersion":18446744073709551616}',
        b'{"mediaType":"\\ud800"}',
        b'{"mediaType":"\\u0000"}',
        b"[" * 100_000,
        b"[" * 40 + b"]" * 40,
        b'{"a":' * 100_000,
        b"[" + b"[]," * 1_000_000 + b"[]]",
    ],
)
def test_rejects_an_unreadable_manifest(content: bytes) -> None:
    with pytest.raises(UnusableError, match="not JSON"):
        check_manifest(content, IMAGE, LIMIT)


def test_media_type_must_match_the_header() -> None:
    for kind in (DOCKER_IMAGE, INDEX, "application/json", ""):
        with pytest.raises(UnusableError, match="another type than its header says"):
            check(image(), kind)
        with pytest.raises(ImageRefusedError, match="not a container image"):
            check(image(mediaType=None), kind.replace(DOCKER_IMAGE, DOCKER_INDEX))


# -- lists of images -----------------------------------------------------------------------------


def digests(*numbers: int) -> tuple[str, ...]:
    return tuple(entry(number)["digest"] for number in numbers)


OTHERS = [{"os": name, "architecture": "amd64"} for name in ("windows", "darwin", "freebsd")]
ATTESTATION = {"os": "unknown", "architecture": "unknown"}
MAYBE_LINUX: list[Any] = [
    LINUX,
    {"os": "linux", "architecture": "riscv64", "variant": "v9"},
    {"os": "Linux"},
    {"os": "L\u0130NUX"},  # Go lowercases it to i
    {"os": ""},
    {"os": None},
    {},
    None,
    {"os": "WINDOWS"},
    {"os": "somethingnew"},
]
"""Platforms that Docker accepts, or might accept, on a Linux host."""


@pytest.mark.parametrize("kind", [INDEX, DOCKER_INDEX])
def test_checks_every_image_that_a_linux_host_could_choose(kind: str) -> None:
    maybe = [entry(number, platform) for number, platform in enumerate(MAYBE_LINUX)]
    systems = enumerate([*OTHERS, ATTESTATION])
    others = [entry(90 + n, platform, urls=ELSEWHERE) for n, platform in systems]
    listed = [*others, *maybe, *maybe]
    found = check(index(*listed, mediaType=kind))
    assert found == digests(*range(len(MAYBE_LINUX)))
    assert check(without(index(*listed), "mediaType"), kind) == found
    assert check(index(without(entry(5), "platform"))) == digests(5)


@pytest.mark.parametrize(
    ("manifest", "reported"),
    [
        (index(), "no image for Linux"),
        (index(*[entry(n, platform) for n, platform in enumerate(OTHERS)]), "no image for Linux"),
        (index(entry(0, ATTESTATION)), "no image for Linux"),
        (index(*[entry(n) for n in range(MAX_IMAGES + 1)]), "33 variants; at most 32"),
        (index(entry(kind=INDEX)), "nested list of images"),
        (index(entry(kind=DOCKER_INDEX)), "nested list of images"),
        (index(entry(urls=ELSEWHERE)), "outside the registry"),
        (index(entry(size=-1)), r"manifests\[0\]\.size"),
        (index(entry() | {"digest": "latest"}), r"manifests\[0\]\.digest"),
        (index(entry(platform="linux")), r"manifests\[0\]\.platform"),
    ],
)
def test_refuses_unsupported_image_lists(manifest: Any, reported: str) -> None:
    with pytest.raises(ImageRefusedError, match=reported):
        check(manifest)


def test_accepts_a_list_of_as_many_images_as_are_allowed() -> None:
    assert len(check(index(*[entry(n) for n in range(MAX_IMAGES)]))) == MAX_IMAGES


def test_checks_an_image_of_a_list() -> None:
    with pytest.raises(ImageRefusedError, match="nested list of images"):
        check_manifest(json.dumps(index(entry())).encode(), INDEX, LIMIT, is_listed=True)
    with pytest.raises(ImageRefusedError, match="outside the registry"):
        foreign = layers(blob(LAYER, urls=ELSEWHERE))
        check_manifest(json.dumps(foreign).encode(), IMAGE, LIMIT, is_listed=True)


# -- digests -------------------------------------------------------------------------------------


def test_digest_matches_only_its_content() -> None:
    sha512 = f"sha512:{hashlib.sha512(b'x').hexdigest()}"
    assert is_named_by(digest_of(b"x"), b"x")
    assert is_named_by(sha512, b"x")
    md5 = f"md5:{hashlib.md5(b'x').hexdigest()}"
    bare = digest_of(b"x").removeprefix("sha256:")
    for wrong in (digest_of(b"y"), digest_of(b"x").upper(), sha512[:-1], md5, bare, "", ":", "x:"):
        assert not is_named_by(wrong, b"x")


# -- arbitrary input -----------------------------------------------------------------------------

_FIELDS = st.sampled_from(
    [
        "schemaVersion",
        "mediaType",
        "config",
        "layers",
        "manifests",
        "fsLayers",
        "digest",
        "size",
        "urls",
        "Urls",
        "platform",
        "os",
        "x",
    ]
)
_SCALARS = st.sampled_from(
    [None, True, 2, -1, 2**70, 1.5, "", "linux", IMAGE, INDEX, CONFIG, LAYER, digest_of(b"")]
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_FIELDS, inner, max_size=6),
    max_leaves=30,
)
_BENT = st.builds(
    lambda base, where, value: {**base, where: value},
    st.sampled_from([image(), index(entry())]),
    _FIELDS,
    _VALUES,
)


@given(
    (_VALUES | _BENT).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=200)
    | st.text(max_size=200).map(str.encode),
    st.sampled_from([IMAGE, INDEX, DOCKER_IMAGE, ""]) | st.text(max_size=20),
)
def test_arbitrary_input_is_accepted_refused_or_unusable(content: bytes, kind: str) -> None:
    with suppress(ImageRefusedError, UnusableError):
        found = check_manifest(content, kind, LIMIT).listed
        assert all(re.fullmatch(r"sha(256|512):[0-9a-f]+", digest) for digest in found)
    with suppress(ImageRefusedError, UnusableError):
        check_manifest(content, kind, LIMIT, is_listed=True)
