"""Tags of applications."""

from dataclasses import dataclass

from controlplane.domain.applications.images import Command, warnings_of


@dataclass(frozen=True, slots=True)
class Tag:
    """An enabled tag; `image` is the reference by digest that agents are given.

    `size_bytes`: of its compressed layers, as the registry declares them; 0 if unknown.
    `platforms`: names of those that its image is for, joined by commas; empty ones are unknown.
    """

    name: str
    digest: str
    image: str
    size_bytes: int = 0
    platforms: str = ""
    command: str = Command.UNKNOWN

    @property
    def platform_names(self) -> tuple[str, ...]:
        """The platforms that its image is for; UNKNOWN for one that is not known."""
        return tuple(self.platforms.split(","))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What callers who start sessions of it should know."""
        return warnings_of(Command(self.command))
