"""The prepared containers of a host, by shape. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from agent.domain.kept.prepared import Prepared
from tiltyard.contract import SessionSpec, shape_key


class Stock:
    """Containers that wait, and ids of those that are being prepared or taken.

    Shapes are named by their key.
    """

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}  # The shape of each container, by id
        self._waiting: dict[str, dict[str, Prepared]] = {}  # By shape, then by id, oldest first

    def __iter__(self) -> Iterator[Prepared]:
        """All that wait."""
        return iter([each for own in self._waiting.values() for each in own.values()])

    def __len__(self) -> int:
        """The number of containers that wait."""
        return sum(map(len, self._waiting.values()))

    def __contains__(self, prepared: Prepared) -> bool:
        """Return whether a container waits."""
        own = self._waiting.get(self._keys.get(prepared.prepared_id, ""), {})
        return prepared.prepared_id in own

    @property
    def ids(self) -> set[str]:
        """Ids of all containers."""
        return set(self._keys)

    @property
    def by_shape(self) -> Mapping[str, Sequence[Prepared]]:
        """The containers that wait, of each shape that has any."""
        return {key: tuple(own.values()) for key, own in self._waiting.items()}

    @property
    def kept(self) -> Mapping[str, Sequence[str]]:
        """Ids of all containers by shape: first those that wait, oldest first."""
        found = {key: list(own) for key, own in self._waiting.items()}
        for prepared_id, key in self._keys.items():
            if prepared_id not in self._waiting.get(key, {}):
                found.setdefault(key, []).append(prepared_id)
        return found

    def key(self, prepared: Prepared) -> str:
        """The shape of a container that waits or was taken."""
        return self._keys[prepared.prepared_id]

    def waiting(self, key: str) -> int:
        """Return the number of containers of a shape that wait."""
        return len(self._waiting.get(key, ()))

    def begin(self, prepared_id: str, key: str) -> None:
        """Add a container that is being prepared."""
        self._keys[prepared_id] = key

    def add(self, prepared: Prepared) -> None:
        """Add a container that waits from now on."""
        key = self._keys.setdefault(prepared.prepared_id, shape_key(prepared.template.spec))
        self._waiting.setdefault(key, {})[prepared.prepared_id] = prepared

    def take(self, spec: SessionSpec) -> Prepared | None:
        """Take the container of a spec's shape that has waited longest, if there is one.

        It counts until it is dropped.
        """
        shape = spec.shape if self._waiting else None
        if shape is None:
            return None
        key = shape_key(shape)
        own = self._waiting.get(key)
        if own is None:
            return None
        prepared = next(iter(own.values()))
        self._remove(key, prepared.prepared_id)
        return prepared

    def put_back(self, prepared: Prepared) -> None:
        """Put back a container that was taken; it is the next one again."""
        key = self._keys[prepared.prepared_id]
        self._waiting[key] = {prepared.prepared_id: prepared, **self._waiting.get(key, {})}

    def drop(self, prepared_id: str) -> None:
        """Remove a container, if it is there."""
        key = self._keys.pop(prepared_id, None)
        if key is not None:
            self._remove(key, prepared_id)

    def _remove(self, key: str, prepared_id: str) -> None:
        own = self._waiting.get(key, {})
        own.pop(prepared_id, None)
        if not own:
            self._waiting.pop(key, None)
