"""Results of reads, kept in memory until what they were read from has changed."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from controlplane.storage.engine.changes import Change, Changes, Key, Topic

_V = TypeVar("_V")


@dataclass(slots=True, eq=False)
class _Entry(Generic[_V]):
    """A kept result, None while it is being read."""

    value: _V | None = None
    size: int = 0


def _one(_: object) -> int:
    return 1


class Cache(Generic[_V]):
    """The last used results, by the key of what they were read from.

    A change of `topics` drops the result of its key, also one that is being read. So no result is
    older than the transactions that resolved before `get`.
    """

    def __init__(
        self,
        changes: Changes,
        topics: Iterable[Topic],
        *,
        most: int,
        size_of: Callable[[_V], int] = _one,
    ) -> None:
        """`most` is the sum of the sizes of the kept results; each has size 1 by default."""
        self._most = most
        self._size_of = size_of
        self._size = 0
        self._entries: OrderedDict[Key, _Entry[_V]] = OrderedDict()
        changes.subscribe(topics, self._drop_changed)

    def get(self, key: Key) -> _V | None:
        """Return a kept result."""
        entry = self._entries.get(key)
        if entry is None or entry.value is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    async def get_or_read(self, key: Key, read: Callable[[], Awaitable[_V | None]]) -> _V | None:
        """Return a kept result, or read and keep it; None is not kept."""
        kept = self.get(key)
        if kept is not None:
            return kept
        with self.reading(key) as keep:
            found = await read()
            if found is not None:
                keep(found)
        return found

    @contextmanager
    def reading(self, key: Key) -> Iterator[Callable[[_V], None]]:
        """Yield a function that keeps what was read within, unless that has changed since."""
        self._drop(key)
        entry = self._entries[key] = _Entry[_V]()

        def keep(value: _V) -> None:
            if self._entries.get(key) is entry:
                entry.value = value
                entry.size = self._size_of(value)
                self._size += entry.size
                self._entries.move_to_end(key)
                self._drop_surplus()

        try:
            yield keep
        finally:
            if entry.value is None and self._entries.get(key) is entry:
                del self._entries[key]

    def _drop_surplus(self) -> None:
        while self._size > self._most:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size

    def _drop_changed(self, change: Change) -> None:
        if change.key:
            self._drop(change.key)
        else:
            self._entries.clear()
            self._size = 0
