"""The images of a fake engine, and those that it can pull."""

from collections.abc import AsyncGenerator, Callable

from agent.domain import errors
from tiltyard.images import PullProgress

IMAGE_BYTES = 10 * 2**20  # The size of each image in bytes


class FakeImages:
    """References of images by digest; `registry` has those that can be pulled."""

    def __init__(self) -> None:
        self.registry: set[str] = set()
        self._stored: set[str] = set()

    def add(self, image: str) -> None:
        self._stored.add(image)

    def lose(self, image: str) -> None:
        """Remove an image, even from under its containers, like another user of the host."""
        self._stored.discard(image)

    def sizes(self) -> dict[str, int]:
        """The size of each stored image in bytes."""
        return dict.fromkeys(self._stored, IMAGE_BYTES)

    def require(self, image: str) -> None:
        """Check that an image is stored; raises ImageMissingError."""
        if image not in self._stored:
            raise errors.ImageMissingError(image)

    def require_for_pull(self, image: str) -> None:
        """Check that an image is stored or can be pulled; raises ImageNotFoundError."""
        if image not in self.registry | self._stored:
            raise errors.ImageNotFoundError(image)

    async def pull(self, image: str, check: Callable[[], None]) -> AsyncGenerator[PullProgress]:
        """Store an image in steps; `check` is called between them and may raise."""
        if image not in self._stored:
            yield PullProgress(layers=1, layers_done=0, received_bytes=1024)
            check()
            self._stored.add(image)
        yield PullProgress(layers=1, layers_done=1, received_bytes=1024)
