"""Claims of standbys in the database: committed before the call, and kept to be made again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from sqlite_utils import Database

from controlplane.domain.contract import Claim, Identity
from controlplane.storage.engine.store import ITSELF, Actor, Event, Store, record_event
from controlplane.storage.tables.session_rows import abandon_attempt, replace_labels
from controlplane.storage.tables.sessions import Attempt

IN_USE = (
    "SELECT 1 FROM session WHERE account=:account AND id=:name"
    " UNION ALL SELECT 1 FROM session WHERE account=:account AND alias=:name"
    " UNION ALL SELECT 1 FROM session WHERE internal_id=:name"
    " UNION ALL SELECT 1 FROM abandoned WHERE internal_id=:name LIMIT 1"
)
"""Finds whether an account has such a name; an OR in it would look at all of its sessions."""


@dataclass(frozen=True, slots=True)
class Guise:
    """What a claim changes of the row: its id, and what the pool says in the caller's place."""

    id: str
    tag: str
    labels: Mapping[str, str]


class Begun(Enum):
    """Whether a claim is a session's attempt."""

    YES = auto()
    NAME_TAKEN = auto()
    """The standby's id is a name of something else: it can be nobody's session."""
    NO = auto()
    """This session cannot take it, as it is to be stopped, or its agent was removed or revoked."""


class ClaimStore:
    """Transactions on claims."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(
        self,
        key: tuple[str, str],
        attempt: Attempt,
        claim: Claim,
        now_ms: int,
        *,
        first_of: Actor | None,
    ) -> Begun:
        """Commit a claim as the attempt of a session before its call.

        The session has the identity of the claim from now on. Its alias is the standby's id where
        that is another, else the id that it had. `first_of` is who started the session, given
        until the audit has it.
        """
        return await self._store.run(
            lambda db: _begin(db, key, attempt, claim, first_of=first_of, now_ms=now_ms)
        )

    async def end(
        self,
        key: tuple[str, str],
        attempt: Attempt,
        before: Guise,
        now_ms: int,
        *,
        abandon: bool,
    ) -> None:
        """Take a failed claim off its session, which is again what it was `before`.

        `abandon` writes it to the ledger: something may have come of it. A session that loses the
        id that it had of the standby leaves the audit under that id.
        """

        def transaction(db: Database) -> None:
            account, session_id = key
            if abandon:
                abandon_attempt(db, attempt.agent, attempt.internal_id, now_ms)
            renamed = before.id != session_id
            if renamed:  # nobody was told of it; who joined it all the same has joined nothing
                sql = "DELETE FROM player WHERE account=:account AND session=:id"
                db.execute(sql, {"account": account, "id": session_id})
            undone = db.execute(
                "UPDATE session SET id=:own_id, alias=NULL, tag=:tag, labels=:labels, claim=NULL,"
                " host='', internal_id=NULL, agent=NULL,"
                " player_count=CASE WHEN :renamed THEN 0 ELSE player_count END"
                " WHERE account=:account AND id=:id AND internal_id=:attempt",
                {
                    "account": account,
                    "id": session_id,
                    "attempt": attempt.internal_id,
                    "own_id": before.id,
                    "tag": before.tag,
                    "labels": json.dumps(dict(before.labels)),
                    "renamed": renamed,
                },
            )
            if undone.rowcount:
                replace_labels(db, account, before.id, before.labels)
            if renamed and undone.rowcount:
                event = Event(now_ms, "session.not_started", account, ITSELF, session_id)
                record_event(db, event, {"why": "the standby was not to be had"})

        await self._store.run(transaction)

    async def held(self, agent: str, internal_id: str) -> Claim | None:
        """Read the claim of a standby that a live session holds, to make it again."""

        def transaction(db: Database) -> Claim | None:
            row = db.execute(
                "SELECT account, id, application, tag, location, labels, external_id, claim"
                " FROM session WHERE internal_id=:internal_id AND agent=:agent"
                " AND ended_ms IS NULL"
                " AND stop_requested_ms IS NULL AND claim IS NOT NULL",
                {"internal_id": internal_id, "agent": agent},
            ).fetchone()
            if row is None:
                return None
            account, session_id, application, tag, location, labels, external_id, text = row
            identity = Identity(
                account=account,
                session_id=session_id,
                application=application,
                tag=tag,
                location=location,
                labels=json.loads(labels),
                external_id=external_id,
            )
            asked = json.loads(text)
            return Claim(internal_id, identity, asked["ttl"], asked["request"], again=True)

        return await self._store.run(transaction)


def _begin(
    db: Database,
    key: tuple[str, str],
    attempt: Attempt,
    claim: Claim,
    *,
    first_of: Actor | None,
    now_ms: int,
) -> Begun:
    account, session_id = key
    identity, standby = claim.identity, claim.internal_id
    # The row that is to take the name has neither yet.
    if db.execute(IN_USE, {"account": account, "name": standby}).fetchone():
        return Begun.NAME_TAKEN
    # Who joins an id that nobody was told of, between its reserving and this, keeps it there.
    joined = "SELECT 1 FROM player WHERE account=:account AND session=:id LIMIT 1"
    row = {"account": account, "id": session_id}
    if session_id != identity.session_id and db.execute(joined, row).fetchone():
        return Begun.NO
    begun = db.execute(
        "UPDATE session SET id=:new_id, alias=:alias, internal_id=:standby, agent=:agent,"
        " host=:host, tag=:tag, labels=:labels, claim=:claim"
        " WHERE account=:account AND id=:id AND stop_requested_ms IS NULL"
        " AND EXISTS (SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL"
        " AND revoked_ms IS NULL)",
        {
            **row,
            "new_id": identity.session_id,
            "alias": session_id if identity.session_id == standby else standby,
            "standby": standby,
            "agent": attempt.agent,
            "host": attempt.host,
            "tag": identity.tag,
            "labels": json.dumps(dict(identity.labels)),
            "claim": json.dumps({"ttl": claim.ttl, "request": claim.request}),
        },
    )
    if begun.rowcount:
        replace_labels(db, account, identity.session_id, identity.labels)
    if begun.rowcount and first_of is not None:
        event = Event(now_ms, "session.reserved", account, first_of, identity.session_id)
        record_event(db, event)
    return Begun.YES if begun.rowcount else Begun.NO
