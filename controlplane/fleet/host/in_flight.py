"""The starts in flight to one host, which its own numbers may not include yet."""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.domain.hosts.contract import Answer
from tiltyard.contract import PortRequest, PreparedShape, Resources


@dataclass(slots=True)
class InFlight:
    """A start that the host has not reported yet; `answer` is None during the call."""

    reservation: Resources
    ports: tuple[PortRequest, ...]
    shape: str = ""  # That of the prepared container that it counts on, instead of a start slot
    answer: Answer | None = None
    is_counted: bool = False  # The host's own numbers include it


class StartsInFlight:
    """Owns the starts in flight to one host, by internal id."""

    def __init__(self) -> None:
        self._starts: dict[str, InFlight] = {}

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def called(self) -> frozenset[str]:
        """The starts whose call has no answer yet."""
        return frozenset(i for i, start in self._starts.items() if start.answer is None)

    def is_called(self, internal_id: str) -> bool:
        """Return whether the call of a start has no answer yet."""
        start = self._starts.get(internal_id)
        return start is not None and start.answer is None

    def get(self, internal_id: str) -> InFlight | None:
        """Return a start."""
        return self._starts.get(internal_id)

    def put(self, internal_id: str, start: InFlight) -> None:
        """Add a start."""
        self._starts[internal_id] = start

    def pop(self, internal_id: str) -> InFlight | None:
        """Remove a start, if it is there."""
        return self._starts.pop(internal_id, None)

    def held(self) -> tuple[int, Resources]:
        """Return the number of starts that the host does not count, and their reservation."""
        if not self._starts:
            return 0, Resources()
        left = [start.reservation for start in self._starts.values() if not start.is_counted]
        return len(left), sum(left, Resources())

    def spare(self, prepared: Mapping[str, PreparedShape], shape: str) -> int:
        """Return the number of waiting prepared containers of a shape that no start counts on.

        Once the host's number includes a start, it leaves out the container of the start.
        """
        kept = prepared.get(shape)
        if kept is None:
            return 0
        starts = self._starts.values()
        counted_on = sum(start.shape == shape and not start.is_counted for start in starts)
        return max(0, kept.kept - counted_on)

    def count(self, starting: frozenset[str]) -> None:
        """Note the starts that the host's numbers include from now on."""
        for internal_id in starting & self._starts.keys():
            self._starts[internal_id].is_counted = True

    def reported(self, incarnation: str, sequence: int) -> list[str]:
        """Return the answered starts that the host's numbers include up to a sequence.

        A restarted agent counts from zero, so its numbers include all earlier answers.
        """
        found = []
        for internal_id, start in self._starts.items():
            answer = start.answer
            if answer is not None and (
                answer.incarnation != incarnation or answer.session.sequence <= sequence
            ):
                found.append(internal_id)
        return found
