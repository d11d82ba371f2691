"""The changes of transactions, and the subscribers to changes.

A transaction notes its changes. After its COMMIT they are published to their subscribers on the
event loop, before its caller continues: no caller reads older data from memory than it has
written. Nothing else invalidates data in memory.

A change without a key means that any object of its topic may have changed: another process may
have made changes that were missed.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


class Topic(Enum):
    """The kinds of things that change, with their keys."""

    SESSION = auto()  # Account, id. Includes its players
    TOKEN = auto()  # Id
    ACCOUNT = auto()  # Name
    APPLICATION = auto()  # Account, name
    TAG = auto()  # Account, application: the list of its tags
    POOL = auto()  # Account, application, region
    HOST = auto()  # Name of its agent
    REGION = auto()  # Name
    NODE_POOL = auto()  # Name
    REGISTRY = auto()  # Name
    EVENT = auto()  # Without a key: the log has further events. A key: personal data was removed
    WEBHOOK = auto()  # Id
    STOP_ORDER = auto()  # Agent, internal id: a new order that is to be sent


Key = tuple[str, ...]


class Change(NamedTuple):
    """A thing that was created, changed or removed; without a key, anything of the topic."""

    topic: Topic
    key: Key = ()


Listener = Callable[[Change], None]
"""Called on the event loop with each change of a topic, in the order of the commits."""


class Changes:
    """Passes changes to their subscribers."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, list[Listener]] = {topic: [] for topic in Topic}

    def subscribe(self, topics: Iterable[Topic], listener: Listener) -> None:
        """Call a listener with all further changes of some topics."""
        for topic in topics:
            self._listeners[topic].append(listener)

    def publish(self, changes: Iterable[Change]) -> None:
        """Call the subscribers of each change. An error of one is logged, and harms no other."""
        for change in changes:
            for listener in self._listeners[change.topic]:
                try:
                    listener(change)
                except Exception:
                    log.exception(
                        "cannot pass on a change: internal error", kind=change.topic.name
                    )
