"""Descriptions of live sessions, kept as JSON until a commit changes the session."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controlplane.domain.status import SessionStatus
from controlplane.storage.engine.changes import SessionKey
from controlplane.storage.engine.store import Store
from tiltyard.contract import State

MOST_BYTES = 48 * 1024 * 1024  # Memory for descriptions: of about 40,000 sessions with few players
_BESIDE = 600  # Bytes of a description beside its JSON: objects and keys


@dataclass(frozen=True, slots=True)
class Description:
    """A live session as JSON, while its host gives it this status."""

    agent: str | None
    state: State
    status: SessionStatus
    content: bytes

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self.content) + _BESIDE


class Descriptions:
    """The last used descriptions, by account and id."""

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[SessionKey, Description] = OrderedDict()
        self._looks: dict[SessionKey, object] = {}
        store.listen(self._committed)

    def get(self, key: SessionKey) -> Description | None:
        """Return a description as of the transactions that resolved before this call, or later."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    @contextmanager
    def looking(self, key: SessionKey) -> Iterator[Callable[[Description], None]]:
        """Yield a function that keeps what is read within, unless a commit has changed it."""
        look = self._looks[key] = object()

        def keep(found: Description) -> None:
            if self._looks.get(key) is look:
                self._drop(key)
                self._known[key] = found
                self._bytes += found.size
                while self._bytes > self._most_bytes:
                    self._drop(next(iter(self._known)))

        try:
            yield keep
        finally:
            if self._looks.get(key) is look:
                del self._looks[key]

    def _drop(self, key: SessionKey) -> None:
        known = self._known.pop(key, None)
        self._bytes -= known.size if known else 0

    def _committed(self, _: object, changed: Collection[SessionKey]) -> None:
        for key in changed:
            self._looks.pop(key, None)
            self._drop(key)
