"""Results of looks, kept in memory until a transaction may have changed them."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar

from controlplane.storage.engine.store import Store, Transaction

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(eq=False)
class Memo(Generic[_K, _T]):
    """The results of one look by its argument; what does not exist is looked up each time.

    Every transaction clears it, except those in `without`, which do not write what it reads.
    """

    store: Store
    at: Transaction[[_K], _T | None]
    _: KW_ONLY
    most: int  # Results kept, the last used ones
    without: Collection[Callable[..., Any]]
    _known: OrderedDict[_K, _T] = field(default_factory=OrderedDict, init=False)
    _generation: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.store.listen(self._committed)

    async def get(self, key: _K) -> _T | None:
        """Return the result as of the transactions that resolved before this call, or later."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        generation = self._generation
        found = await self.store.look(self.at, key)
        if found is not None and generation == self._generation:
            self._known[key] = found
            if len(self._known) > self.most:
                self._known.popitem(last=False)
        return found

    def known(self, key: _K) -> _T | None:
        """Return the result that `get` would return without a look."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def amend(self, key: _K, known: _T, changed: _T) -> None:
        """Note what a transaction in `without` has changed, unless the result was dropped."""
        if self._known.get(key) is known:
            self._known[key] = changed

    def _committed(self, transactions: Collection[Callable[..., Any]], _: object) -> None:
        if not set(transactions).issubset(self.without):
            self._generation += 1
            self._known.clear()
