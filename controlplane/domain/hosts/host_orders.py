"""Orders of hosts: the images to keep, and the shapes to prepare containers of."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from controlplane.domain.applications.images import can_run
from tiltyard.contract import SessionSpec


@dataclass(frozen=True, slots=True)
class HostImages:
    """Images that a host must have, and those of withdrawn tags that it may remove."""

    wanted: Mapping[str, AbstractSet[str]]
    """The accounts that have each image enabled."""
    surplus: Mapping[str, AbstractSet[str]]
    """The accounts that had each image enabled; "" for removed accounts."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Compressed bytes of wanted images; 0 if unknown."""
    platforms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Platforms that wanted images are for; empty ones are unknown."""

    def without_foreign(self, platform: str) -> "HostImages":
        """Return these images without those that an engine of a platform cannot run."""
        wanted = {
            image: accounts
            for image, accounts in self.wanted.items()
            if can_run(platform, self.platforms.get(image, ()))
        }
        return replace(self, wanted=wanted)


@dataclass(frozen=True, slots=True)
class HostOrders:
    """The images of a host, and the shapes of which it is to keep a prepared container."""

    images: HostImages
    shapes: tuple[SessionSpec, ...] = ()
