"""Triggers that see what a transaction changes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from tests.support.controlplane.transactions import connection_of

KEYS: dict[str, tuple[Topic, tuple[str, ...]]] = {
    "session": (Topic.SESSION, ("account", "id")),
    "player": (Topic.SESSION, ("account", "session")),
    "token": (Topic.TOKEN, ("id",)),
    "account": (Topic.ACCOUNT, ("name",)),
    "application": (Topic.APPLICATION, ("account", "name")),
    "tag": (Topic.TAG, ("account", "application")),
    "warm_pool": (Topic.POOL, ("account", "application", "location")),
    "agent": (Topic.HOST, ("name",)),
    "region": (Topic.REGION, ("name",)),
    "node_pool": (Topic.NODE_POOL, ("name",)),
    "registry": (Topic.REGISTRY, ("name",)),
    "event": (Topic.EVENT, ()),
    "webhook": (Topic.WEBHOOK, ("id",)),
}

SENT_STOP_ORDER = (
    "CREATE TEMP TRIGGER ordered AFTER INSERT ON main.stop_order WHEN NEW.why <> 'requested'"
    " BEGIN SELECT note_order(NEW.agent, NEW.internal_id); END"
)
"""New stop orders alone are noted, without those that their request sends."""


@dataclass
class Written:
    """What triggers have seen."""

    changes: set[Change] = field(default_factory=set)

    def watch(self, db: Database) -> None:
        connection = connection_of(db)
        connection.create_function("note_order", -1, self._noting(Topic.STOP_ORDER))
        connection.execute(SENT_STOP_ORDER)
        for table, (topic, columns) in KEYS.items():
            name = f"note_{table}"
            connection.create_function(name, -1, self._noting(topic))
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                key = ", ".join(f"{row}.{column}" for column in columns)
                connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table}"
                    f" BEGIN SELECT {name}({key}); END"
                )

    def _noting(self, topic: Topic) -> Callable[..., None]:
        return lambda *key: self.changes.add(Change(topic, key))
