"""Events as readers of the log get them."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from controlplane.domain.access.audit import ActorKind
from controlplane.domain.events.positions import Position


class EventRow(NamedTuple):
    """A row of the log. `data` is the JSON of an object."""

    sequence: int
    time_ms: int
    kind: str
    version: int
    account: str
    actor: str
    actor_kind: str
    address: str
    object: str
    data: str


class StoredEvent:
    """An event with its place in the log. Its JSON is made once for each audience."""

    def __init__(self, epoch: int, row: EventRow) -> None:
        self.row = row
        self.position = Position(epoch, row.sequence)

    @property
    def kind(self) -> str:
        """The kind, such as `session.ready`."""
        return self.row.kind

    @property
    def account(self) -> str:
        """The account that the event concerns, empty if none."""
        return self.row.account

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The fields of its kind."""
        found: Mapping[str, Any] = json.loads(self.row.data)
        return found

    @cached_property
    def for_account(self) -> str:
        """The JSON that its account gets: without addresses, and without the names of others."""
        return self._json(f'"actor": {_text(self._actor_for_account())}')

    @cached_property
    def for_operators(self) -> str:
        """The JSON that operators get."""
        row = self.row
        return self._json(f'"actor": {_text(row.actor)}, "address": {_text_or_null(row.address)}')

    @property
    def size(self) -> int:
        """Bytes that the event takes in memory with its JSON, estimated."""
        row = self.row
        texts = len(row.data) + len(row.object) + len(row.account) + len(row.actor)
        return 1000 + 3 * texts

    def _json(self, by: str) -> str:
        row = self.row
        return (
            f'{{"id": "{self.position}", "type": {_text(row.kind)}, "version": {row.version},'
            f' "time": {row.time_ms}, "account": {_text_or_null(row.account)},'
            f' "object": {_text(row.object)}, {by}, "data": {row.data}}}'
        )

    def _actor_for_account(self) -> str:
        kind = self.row.actor_kind
        return self.row.actor if kind == ActorKind.ACCOUNT else kind


def _text(text: str) -> str:
    return json.dumps(text)


def _text_or_null(text: str) -> str:
    return json.dumps(text or None)
