"""The addresses of a container on its bridge."""

from typing import Protocol


class Addressed(Protocol):
    """Has the addresses of a container; each is empty if there is none."""

    @property
    def address(self) -> str:
        """The IPv4 address."""
        ...

    @property
    def ipv6_address(self) -> str:
        """The IPv6 address."""
        ...
