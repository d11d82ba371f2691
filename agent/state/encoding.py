"""The encoding of sessions: in record.json, in a container's label, and for the game."""

import contextlib
import json
from collections.abc import Mapping

from pydantic import TypeAdapter

from agent.domain.containers.engine import LABEL_RECORD
from agent.domain.sessions.session import Deadline, Drain, Session

PUBLIC_FORMAT = 1
"""Format of session.json. Games are rarely rebuilt: incremented only with a major version."""

SESSIONS = TypeAdapter(Session)  # The content of record.json


def encode_label(session: Session) -> str:
    """Return the record for the container's label, without secrets."""
    public = session.with_changes(spec=session.spec.without_secrets, program=())
    return SESSIONS.dump_json(public).decode()


def decode_label(labels: Mapping[str, str]) -> Session:
    """Parse the record in a container's labels; raises ValueError when it is invalid."""
    return SESSIONS.validate_json(labels.get(LABEL_RECORD, "").encode())


def public_view(session: Session, drain: Drain) -> bytes:
    """Return the content of session.json. Times are in milliseconds."""
    identity = session.spec.identity
    view = json.dumps(
        {
            "format": PUBLIC_FORMAT,
            "id": identity.session_id,
            "host": session.host,
            "ports": [
                {"type": port.protocol.value, "container": port.container, "host": port.host}
                for port in session.ports
            ],
            "labels": dict(identity.labels),
            "external_id": identity.external_id or None,
            "traceparent": identity.traceparent or None,
            "expire_time": _expire_ms(session.deadline),
            "draining": drain.draining,
            "drain_time": _expire_ms(drain.deadline),
            "standby": session.is_standby,
            "request": json.loads(session.claim.request) if session.claim else None,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return view.encode() + b"\n"


def _expire_ms(deadline: Deadline | None) -> int | None:
    return None if deadline is None else round(deadline.expire_time * 1000)


def decode_claims(journal: bytes) -> dict[str, Session]:
    """Parse the journal of claims: claimed sessions by internal id."""
    claimed = {}
    for line in journal.split(b"\n"):
        with contextlib.suppress(ValueError):  # cut off by a power failure
            session = SESSIONS.validate_json(line)
            claimed[session.internal_id] = session
    return claimed


def newest(record: Session | None, claimed: Session | None) -> Session | None:
    """Return a session's record, or its claim from the journal unless the record is newer."""
    return record if record is not None and record.claim is not None else claimed or record
