"""Messages of agent.proto about the images of a host, which may be more than one message holds."""

from collections.abc import Collection, Mapping

from agent.rpc.wire import progress_to_proto
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import PullProgress

IMAGES_IN_MESSAGE = 2000
"""Of 330 bytes each at most, so less than a MiB: a message may have 4."""


def images_to_proto(
    here: Collection[str], sizes: Mapping[str, int], pulls: Mapping[str, PullProgress]
) -> list[pb.ListImagesResponse]:
    """The images of a host as others see them, in parts."""
    found = [
        pb.ListImagesResponse(
            images=[pb.Image(image=image, size_bytes=sizes.get(image)) for image in part]
        )
        for part in _parts(here)
    ]
    found[0].pulls.extend(
        pb.Pull(image=image, progress=progress_to_proto(progress))
        for image, progress in sorted(pulls.items())
    )
    return found


def image_batches(here: Collection[str]) -> list[pb.ImageBatch]:
    """All images of a host as they are sent to watchers, in parts."""
    parts = _parts(here)
    return [
        pb.ImageBatch(images=part, first=number == 1, last=number == len(parts))
        for number, part in enumerate(parts, 1)
    ]


def _parts(images: Collection[str]) -> list[list[str]]:
    """Images by name, at most IMAGES_IN_MESSAGE in each part; at least one part."""
    names = sorted(images)
    step = IMAGES_IN_MESSAGE
    return [names[at : at + step] for at in range(0, len(names), step)] or [[]]
