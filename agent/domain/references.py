"""References of images, which are at a registry and by digest."""

import re

from agent.domain.errors import InvalidArgumentError
from tiltyard.images import LONGEST_ADDRESS, LONGEST_REPOSITORY, why_refused

_REPOSITORY = re.compile(
    r"(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)+@sha256:[0-9a-f]{64}", re.ASCII
)
LONGEST_REFERENCE = LONGEST_ADDRESS + 1 + LONGEST_REPOSITORY + len("@sha256:") + 64
"""Characters: 253 + 6 + 1 + 255 + 72 = 587, the longest that a control plane can enable."""


def checked_reference(image: str) -> str:
    """Return `image`; InvalidArgumentError unless it is a digest reference at a registry."""
    registry, slash, rest = image.partition("/")
    if len(image) > LONGEST_REFERENCE or not _REPOSITORY.fullmatch(slash + rest):
        raise InvalidArgumentError("image", "it is not host[:port]/repository@sha256:digest")
    cause = why_refused(registry)
    if cause is not None:
        raise InvalidArgumentError("image", f"its registry is {registry!r}: {cause}")
    return image
