"""Selects the events that a reader of the log gets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from controlplane.domain.events.event import Audience, Retention, json_field
from controlplane.domain.events.kinds import KINDS, kinds_kept
from controlplane.domain.events.sessions import SessionEvent
from controlplane.domain.events.stored import StoredEvent

_OF_SESSIONS = frozenset(kind for kind, event in KINDS.items() if issubclass(event, SessionEvent))
_FOR_ACCOUNTS = frozenset(
    kind for kind, event in KINDS.items() if event.audience is not Audience.OPERATOR
)
ONLY_IF_NAMED = frozenset(kinds_kept(Retention.PLAYERS))
"""Kinds with personal data: a reader gets them only if its filter names them."""


def _patterns(kinds: Collection[str]) -> tuple[str, ...]:
    topics = dict.fromkeys(kind.partition(".")[0] for kind in kinds)
    return (*kinds, *(f"{topic}.*" for topic in topics))


ALL_PATTERNS = _patterns(KINDS)
"""The patterns by which an operator can filter: the kinds, and `topic.*` of their topics."""
ACCOUNT_PATTERNS = _patterns([kind for kind in KINDS if kind in _FOR_ACCOUNTS])
"""The patterns by which an account can filter: only the kinds that an account can get."""


@dataclass(frozen=True)
class EventFilter:
    """A filter of the log; fields that are None or empty do not filter.

    `account` is None for all accounts, which only operators read. Operators also get the events of
    an account that the account itself does not get. `kinds` are kinds, or all kinds of a topic
    (`session.*`); if empty, all kinds except those of players. The other fields select events of
    sessions and their players, by the data of the events.
    """

    account: str | None
    is_operator: bool = False
    kinds: tuple[str, ...] = ()
    image: str | None = None
    location: str | None = None
    session: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    kind_names: frozenset[str] | None = field(init=False, repr=False)
    """The kinds that the reader gets.

    None for all but ONLY_IF_NAMED, also those of another release.
    """
    reads_data: bool = field(init=False, repr=False)
    """True if the filter depends on the data of events."""

    def __post_init__(self) -> None:
        """Find out now what each event is compared with: thousands of streams get one at once."""
        reads_data = self.image is not None or self.location is not None or bool(self.labels)
        is_of_sessions = self.session is not None or reads_data
        names = _kind_names(
            self.kinds, is_operator=self.is_operator, is_of_sessions=is_of_sessions
        )
        object.__setattr__(self, "reads_data", reads_data)
        object.__setattr__(self, "kind_names", names)

    def matches(self, event: StoredEvent) -> bool:
        """Return whether a reader with this filter gets an event."""
        if self.account is not None and event.account != self.account:
            return False
        if self.kind_names is None:
            if event.kind in ONLY_IF_NAMED:
                return False
        elif event.kind not in self.kind_names:
            return False
        if self.session is not None and event.row.object != self.session:
            return False
        return not self.reads_data or self._matches_data(event)

    @cached_property
    def retentions(self) -> frozenset[Retention]:
        """The classes of retention that the reader gets events of."""
        names = KINDS.keys() - ONLY_IF_NAMED if self.kind_names is None else self.kind_names
        return frozenset(KINDS[name].retention for name in names)

    @cached_property
    def data_texts(self) -> Sequence[str]:
        """Texts that the data of each event of the filter contains: see `Event.data_json`."""
        fields = {"image": self.image, "location": self.location}
        wanted = {name: text for name, text in fields.items() if text is not None}
        return tuple(json_field(*each) for each in (*wanted.items(), *self.labels.items()))

    def _matches_data(self, event: StoredEvent) -> bool:
        data = event.data
        if self.image is not None and data.get("image") != self.image:
            return False
        if self.location is not None and data.get("location") != self.location:
            return False
        labels = data.get("labels") or {}
        return all(labels.get(name) == value for name, value in self.labels.items())


@lru_cache(maxsize=1024)  # Each stream has a filter, and most are alike
def _kind_names(
    patterns: tuple[str, ...], *, is_operator: bool, is_of_sessions: bool
) -> frozenset[str] | None:
    if is_operator and not patterns and not is_of_sessions:
        return None
    names = frozenset(KINDS) if is_operator else _FOR_ACCOUNTS
    if is_of_sessions:
        names &= _OF_SESSIONS
    if not patterns:
        return names - ONLY_IF_NAMED
    return frozenset(name for name in names if any(_matches(each, name) for each in patterns))


def _matches(pattern: str, kind: str) -> bool:
    if pattern.endswith(".*"):
        return kind.startswith(pattern[:-1])
    return kind == pattern
