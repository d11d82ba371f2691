"""Records that are made thousands of times a second."""

from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, **settings: Any) -> Any:
        """Make a dataclass that is frozen for the type checker alone, and hashable.

        The `__init__` of a frozen dataclass sets each field by a call of `object.__setattr__`,
        which takes several times as long as an assignment.
        """
        return dataclass(frozen=False, unsafe_hash=frozen, **settings)
