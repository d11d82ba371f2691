"""The assignment of containers to sessions. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from agent.domain.containers.engine import LABEL_PREPARED, LABEL_SESSION, NAME_PREFIX, Container
from agent.domain.errors import InvalidArgumentError
from agent.domain.sessions.session import Session, checked_id


class Owned(NamedTuple):
    """A container with the internal id of its session, which the agent may not know."""

    internal_id: str
    container: Container


def assign(
    containers: Iterable[Container], sessions: Iterable[Session]
) -> tuple[list[Owned], list[Container]]:
    """Return the containers of sessions, and the prepared ones that no session has taken.

    A container that was created for a session has its id in a label. A prepared one belongs to the
    session whose record names it, or without a record to the one whose name it was given.
    Containers that are neither are left out.
    """
    taken = {session.container: session.internal_id for session in sessions if session.container}
    owned = []
    prepared = []
    for found in containers:
        internal_id = found.labels.get(LABEL_SESSION)
        if internal_id is None and LABEL_PREPARED in found.labels:
            internal_id = taken.get(found.container) or _session_named(found.name)
            if not internal_id:
                prepared.append(found)
        if internal_id:
            owned.append(Owned(internal_id, found))
    return owned, prepared


def _session_named(name: str) -> str:
    """The internal id in the name of a session's container; empty for another name."""
    try:
        return checked_id(name.removeprefix(NAME_PREFIX))
    except InvalidArgumentError:
        return ""
