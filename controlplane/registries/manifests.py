"""Checks image manifests before any host pulls them.

Docker parses the same bytes with another parser, so ambiguous ones are refused: fields in another
case (Go's JSON ignores case, also beyond ASCII), duplicate fields, and an image that is also a
list (CVE-2021-41190). Of a list, each manifest that a Linux host might choose is checked. Sizes
are those that the manifest declares.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel, to_pascal

from controlplane.domain.applications.images import (
    UNKNOWN,
    ImageConfig,
    command_of,
    platform_name,
)
from controlplane.domain.errors import ImageRefusedError
from controlplane.domain.json_reader import read_json
from controlplane.registries.endpoint import UnusableError
from tiltyard.runtime.settings import checked, shown

MAX_LAYERS = 125  # Docker's limit: 126 layers fail with "max depth exceeded"

MAX_IMAGES = 32
"""Linux images in one list, since each costs a request. Large real lists have about twelve."""

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Hosts hold the config in memory; real ones have a few kilobytes."""

MAX_VALUES = 20_000  # JSON values in a manifest: 4 MiB of empty lists take 2 s to validate

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGE_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIG_TYPES = frozenset(
    {"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
)
_LAYER_TYPE = re.compile(
    r"application/vnd\.(?:oci\.image\.layer\.v1\.tar(?:\+gzip|\+zstd)?"
    r"|docker\.image\.rootfs\.diff\.tar(?:\.gzip|\.zstd)?)\Z"
)
_OTHER_SYSTEMS = frozenset(
    {"unknown", "windows", "darwin", "freebsd", "netbsd", "openbsd", "solaris", "illumos", "aix"}
)
"""Case-sensitive: Docker might run another spelling as Linux. Attestations are `unknown`."""

_NO_IMAGE = "is not a container image"
_NOT_LINUX = "has no image for Linux"
_NESTED = "is a nested list of images"
_EXTERNAL = "has a part outside the registry"
"""Docker may fetch it from a URL in the manifest, with credentials (CVE-2020-15157)."""

_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")


def _check_digest(text: str) -> None:
    if not _DIGEST.match(text):
        raise ValueError("is not a digest")


class _Part(BaseModel):
    """An object in a manifest. Unknown fields are ignored, as in Docker."""

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, alias_generator=to_camel, validate_by_name=False
    )

    @model_validator(mode="before")
    @classmethod
    def _reject_other_case(cls, value: Any) -> Any:
        known = {str(field.alias) for field in cls.model_fields.values()}
        folded = {name.casefold() for name in known}
        for name in value if isinstance(value, dict) else ():
            if name not in known and name.casefold() in folded:
                raise ValueError("has a field in another case")
        return value


class _Platform(_Part):
    os: str | None = None
    architecture: str | None = None
    variant: str | None = None

    @property
    def name(self) -> str:
        return platform_name(self.os or "", self.architecture or "", self.variant or "")


class _Execution(_Part):
    """What an image's config says of its containers."""

    model_config = ConfigDict(alias_generator=to_pascal)

    entrypoint: list[str] | None = None
    cmd: list[str] | None = None


class _Config(_Platform):
    """An image's config."""

    config: _Execution | None = None


class _Descriptor(_Part):
    """Reference to a blob or manifest; `size` in bytes."""

    media_type: str
    digest: Annotated[str, checked(_check_digest)]
    size: Annotated[int, Field(ge=0)]
    urls: list[str] | None = None
    platform: _Platform | None = None


class _Manifest(_Part):
    """An image (config and layers) or an index (manifests)."""

    schema_version: int
    media_type: str | None = None
    config: _Descriptor | None = None
    layers: list[_Descriptor] | None = None
    manifests: list[_Descriptor] | None = None
    fs_layers: Any = None

    @model_validator(mode="after")
    def _reject_ambiguous(self) -> Self:
        if self.manifests is not None and (self.config or self.layers is not None):
            raise ValueError("is an image and a list of images at once")
        return self


class Checked(NamedTuple):
    """A manifest that may be used: of an image, or of a list.

    `size_bytes` and `config`, its digest, are of an image. `listed` are the images that a list
    names: by digest the platform, UNKNOWN if the list does not name it.
    """

    size_bytes: int = 0
    config: str = ""
    listed: Mapping[str, str] = {}


def digest_of(content: bytes) -> str:
    """Return the digest by which hosts pull a manifest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_named_by(digest: str, content: bytes) -> bool:
    """Return whether a digest is well formed and matches this content."""
    algorithm, _, hexadecimal = digest.partition(":")
    found = _DIGEST.match(digest) and hashlib.new(algorithm, content).hexdigest()
    return found == hexadecimal


def check_manifest(
    content: bytes, content_type: str, max_image_bytes: int, *, is_listed: bool = False
) -> Checked:
    """Check an image and return its size; of a list, the digests that remain to be checked.

    The size is the sum of the declared, compressed sizes of config and layers, which
    `max_image_bytes` limits. One that `is_listed`, by a list, must be an image.

    Raises:
        ImageRefusedError: The image may not be used.
        UnusableError: Malformed.
    """
    manifest = _read(content, content_type)
    if manifest.manifests is None:
        size, config = _check_image(manifest, max_image_bytes)
        return Checked(size_bytes=size, config=config)
    if is_listed:
        raise ImageRefusedError(_NESTED)
    return Checked(listed=_linux_images(manifest.manifests))


def read_config(content: bytes) -> ImageConfig:
    """Read the config of an image.

    Raises:
        ImageRefusedError: It is of an image for another system than Linux.
        UnusableError: Malformed.
    """
    try:
        config = _Config.model_validate(read_json(content, max_values=MAX_VALUES))
    except (ValidationError, ValueError):
        raise UnusableError("its config is malformed") from None
    if config.os in _OTHER_SYSTEMS:
        raise ImageRefusedError(_NOT_LINUX)
    execution = config.config or _Execution()
    command = command_of(execution.entrypoint or (), execution.cmd or ())
    return ImageConfig(config.name, command)


def _read(content: bytes, content_type: str) -> _Manifest:
    try:
        value = read_json(content, max_values=MAX_VALUES)
    except ValueError as error:
        raise UnusableError("its manifest is not JSON", f"its manifest {error}") from None
    try:
        manifest = _Manifest.model_validate(value)
    except ValidationError as error:
        raise ImageRefusedError(_describe_first(error)) from None
    if manifest.schema_version != 2 or manifest.fs_layers is not None:
        raise ImageRefusedError("has a manifest older than schema 2: push it again")
    kind = content_type.partition(";")[0].strip()
    if manifest.media_type not in {None, kind}:
        raise UnusableError("its manifest is of another type than its header says")
    if kind not in (IMAGE_TYPES if manifest.manifests is None else INDEX_TYPES):
        raise ImageRefusedError(_NO_IMAGE)
    return manifest


def _check_image(image: _Manifest, max_image_bytes: int) -> tuple[int, str]:
    """Return its size, and the digest of its config."""
    config = image.config
    layers = image.layers
    if config is None or layers is None or config.media_type not in _CONFIG_TYPES:
        raise ImageRefusedError(_NO_IMAGE)
    for part in (config, *layers):
        if part.urls or "foreign" in part.media_type or "nondistributable" in part.media_type:
            raise ImageRefusedError(_EXTERNAL)
    if not all(_LAYER_TYPE.match(layer.media_type) for layer in layers):
        raise ImageRefusedError("has a layer that is not one of a container image")
    if len(layers) > MAX_LAYERS:
        raise ImageRefusedError(f"has {len(layers)} layers; a host can mount {MAX_LAYERS}")
    if config.size > MAX_CONFIG_BYTES:
        raise ImageRefusedError(f"has a config of more than {MAX_CONFIG_BYTES} bytes")
    # A duplicate layer counts twice: it is stored once but unpacked twice.
    size = config.size + sum(layer.size for layer in layers)
    if size > max_image_bytes:
        raise ImageRefusedError(f"has {size} bytes; at most {max_image_bytes} are allowed")
    return size, config.digest


def _linux_images(manifests: list[_Descriptor]) -> dict[str, str]:
    for_linux = [
        one for one in manifests if one.platform is None or one.platform.os not in _OTHER_SYSTEMS
    ]
    images: dict[str, str] = {}
    for one in for_linux:
        name = UNKNOWN if one.platform is None else one.platform.name
        # One that is listed for several platforms is for any of them.
        images[one.digest] = name if images.get(one.digest, name) == name else UNKNOWN
    if any(one.urls for one in for_linux):
        raise ImageRefusedError(_EXTERNAL)
    if any(one.media_type in INDEX_TYPES for one in for_linux):
        raise ImageRefusedError(_NESTED)
    if not images:
        raise ImageRefusedError(_NOT_LINUX)
    if len(images) > MAX_IMAGES:
        raise ImageRefusedError(f"has {len(images)} variants; at most {MAX_IMAGES} are allowed")
    return images


def _describe_first(error: ValidationError) -> str:
    """Describe the first error, quoting nothing from the manifest but known field names."""
    details = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = shown(details["loc"]) or "the manifest"
    return f"is malformed: {where}: {details['msg'].removeprefix('Value error, ')}"
