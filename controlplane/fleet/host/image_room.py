"""The disk of one host for images, of which an account has a share.

The size of an image on the host is known once the host has it. Before, it is estimated from the
compressed size in its manifest, and reserved while the image is pulled.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.hosts.host_orders import HostImages
from controlplane.fleet.host.state import HostState
from tiltyard.runtime.fair_share import exceeds_share

UNPACKED = 3
"""Bytes that an image is expected to take on a host for each byte of its compressed layers.

Usual layers unpack to about 2.5 times their size.
"""


@dataclass(slots=True)
class ImageRoom:
    """Counts the bytes of images on a host by account."""

    host: HostState
    _sizes: Mapping[str, int] = field(default_factory=dict)
    """Compressed bytes of wanted images."""
    _held: Counter[str] = field(default_factory=Counter)
    _reserved: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The account of each image that is being pulled, and the bytes that the image may take."""
    _counted: Mapping[str, int] = field(default_factory=dict)
    """The report of the host that was counted last."""

    @property
    def is_outdated(self) -> bool:
        """True if the host has reported its images since they were counted."""
        return self.host.image_sizes is not self._counted

    @property
    def held(self) -> list[tuple[str, int]]:
        """Bytes of images on the host by account, the largest sum first.

        An image of several accounts counts for each.
        """
        return self._held.most_common()

    def count(self, images: HostImages) -> None:
        """Count what the host has reported; `images` are those of its place."""
        self._sizes = images.sizes
        self._counted = self.host.image_sizes
        self._held = Counter()
        for image, size in self._counted.items():
            accounts = images.wanted.get(image) or images.surplus.get(image) or set()
            for account in accounts:
                self._held[account] += size
        del self._held[""]  # removed accounts

    def has_share(self, account: str, image: str) -> bool:
        """Return whether an account may have one more image on the host.

        With it the account must not hold more than what is left free.
        """
        free = None if self.host.report is None else self.host.report.free_image_bytes
        if free is None:
            return True
        size = max(1, self._expected_bytes(image))
        held = self._held[account]
        taken = size
        for holder, reserved in self._reserved.values():
            taken += reserved
            held += reserved if holder == account else 0
        return not exceeds_share(held, size, taken, free)

    def reserve(self, account: str, image: str) -> int:
        """Reserve the bytes that an image is expected to take, and return them; 0 if unknown."""
        expected = self._expected_bytes(image)
        self._reserved[image] = account, expected
        return expected

    def release(self, image: str) -> None:
        """End the reservation of an image, if there is one."""
        self._reserved.pop(image, None)

    def _expected_bytes(self, image: str) -> int:
        return UNPACKED * self._sizes.get(image, 0)
