"""Sessions in the database, as callers ask for them. What agents report is `settling.py`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlite_utils import Database

from controlplane.domain.contract import Port, Protocol, Resources, State
from controlplane.domain.errors import (
    AgentReason,
    AgentRefusedError,
    ConflictError,
    QuotaExceededError,
    StoppedDuringStartError,
    UnauthorizedError,
)
from controlplane.storage.engine.store import ITSELF, Actor, Event, Store, record_event
from controlplane.storage.tables.quota_use import passed_limit, quota_of
from controlplane.storage.tables.session_rows import (
    abandon_attempt,
    add_labels,
    own_id,
    remove_abandoned,
    remove_ended,
)

COLUMNS = (
    "account, id, internal_id, agent, confirmed, state, application, tag, location, host, ports,"
    " labels, external_id, injected_env, created_ms, ended_ms, detail,"
    " player_count, alias"
)

_ID_TAKEN = "the session id is in use"


@dataclass(frozen=True, slots=True)
class NewSession:
    """What is known of a session when its id is taken."""

    account: str
    id: str
    application: str
    tag: str
    location: str
    labels: Mapping[str, str]
    external_id: str
    reservation: Resources
    created_ms: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the database has it.

    `internal_id`, `agent` and `host` are those of the newest attempt, None and "" before the
    first; `confirmed` is False until an agent has said that this attempt runs. `labels` and
    `injected_env` are JSON objects as text, which is how they are shown, too. `alias` is another
    name of it in the account, None where it has none.
    """

    account: str
    id: str
    internal_id: str | None
    agent: str | None
    confirmed: bool
    state: State
    application: str
    tag: str
    location: str
    host: str
    ports: tuple[Port, ...]
    labels: str
    external_id: str
    injected_env: str
    created_ms: int
    ended_ms: int | None
    detail: str
    player_count: int
    alias: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to start a session on one host, under an internal id of its own."""

    internal_id: str
    agent: str
    host: str


class SessionStore:
    """Transactions on sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve_session(self, new: NewSession) -> None:
        """Take the id and the quota in one transaction.

        The audit has it with the first attempt: refusals that cost nothing must not fill it.

        Raises:
            UnauthorizedError: The account was removed meanwhile.
            ConflictError: A session of the account has the id.
            QuotaExceededError: One more would pass a limit of the account.
        """
        await self._store.run(lambda db: _reserve(db, new))

    async def begin_attempt(
        self,
        account: str,
        session_id: str,
        attempt: Attempt,
        now_ms: int,
        *,
        first_of: Actor | None = None,
    ) -> None:
        """Commit an attempt before its call.

        `first_of` is who started the session, given until an attempt of it has begun.

        Raises:
            StoppedDuringStartError: The session is to be stopped.
            AgentRefusedError: The agent was removed or revoked.
        """

        def transaction(db: Database) -> None:
            begun = db.execute(
                "UPDATE session SET internal_id=:internal_id, agent=:agent, host=:host"
                " WHERE account=:account AND id=:id"
                " AND stop_requested_ms IS NULL"
                " AND EXISTS (SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL"
                " AND revoked_ms IS NULL)",
                {"account": account, "id": session_id, **asdict(attempt)},
            )
            if not begun.rowcount:
                if _is_to_stop(db, account, session_id):
                    raise StoppedDuringStartError
                raise AgentRefusedError(AgentReason.DRAINING, "the agent was removed")
            if first_of is not None:
                event = Event(now_ms, "session.reserved", account, first_of, session_id)
                record_event(db, event)

        await self._store.run(transaction)

    async def end_attempt(
        self, account: str, session_id: str, attempt: Attempt, now_ms: int, *, abandon: bool
    ) -> None:
        """Take a failed attempt off its session, which has none until the next one begins.

        One that its host has reported meanwhile stays: it is what the session became.
        `abandon` writes it to the ledger: something may have come of it.
        """

        def transaction(db: Database) -> None:
            if abandon:
                abandon_attempt(db, attempt.agent, attempt.internal_id, now_ms)
            db.execute(
                "UPDATE session SET internal_id=NULL, agent=NULL, host=''"
                " WHERE account=:account AND id=:id AND internal_id=:attempt AND NOT confirmed",
                {"account": account, "id": session_id, "attempt": attempt.internal_id},
            )

        await self._store.run(transaction)

    async def free(
        self,
        account: str,
        session_id: str,
        why: str,
        now_ms: int,
        *,
        attempt: Attempt | None,
        attempted: bool,
    ) -> None:
        """Forget a session that never started; `attempt` is one that something may come of.

        The audit knows of it, and is told, when any was `attempted`.
        """

        def transaction(db: Database) -> None:
            if attempt is not None:
                abandon_attempt(db, attempt.agent, attempt.internal_id, now_ms)
            db.execute(
                "DELETE FROM session WHERE account=:account AND id=:id AND NOT confirmed"
                " AND (internal_id IS NULL OR internal_id=:attempt)",
                {"account": account, "id": session_id, "attempt": attempt and attempt.internal_id},
            )
            if attempted:
                event = Event(now_ms, "session.not_started", account, ITSELF, session_id)
                record_event(db, event, {"why": why})

        await self._store.run(transaction)

    async def get(self, account: str, session_id: str) -> Session | None:
        """Read one session of an account, ended ones included until they are forgotten."""
        return await self._store.look(lambda db: read_session(db, account, session_id))

    async def request_stop(
        self, account: str, name: str, actor: Actor, now_ms: int
    ) -> Session | None:
        """Mark a session to be stopped, by its id or its alias, and return it.

        The mark stays on its row: no attempt begins under it, what is confirmed under it is
        stopped, and an absent host gets the stop on its return. None when there is no such
        session, or it has ended.
        """

        def transaction(db: Database) -> Session | None:
            session_id = own_id(db, account, name)
            row = db.execute(
                "UPDATE session SET stop_requested_ms = coalesce(stop_requested_ms, :now)"  # noqa: S608
                f" WHERE account=:account AND id=:id AND ended_ms IS NULL RETURNING {COLUMNS}",
                {"account": account, "id": session_id, "now": now_ms},
            ).fetchone()
            record_event(db, Event(now_ms, "session.stop", account, actor, session_id))
            return session_of(row) if row else None

        return await self._store.run(transaction)

    async def forget_ended(self, before_ms: int) -> None:
        """Forget sessions that ended before a time, and settled ledger entries as old.

        A portion after the other, so that others have their turn.
        """
        while await self._store.run(lambda db: remove_abandoned(db, before_ms)):
            pass
        while await self._store.run(lambda db: remove_ended(db, before_ms)):
            pass

    async def drop_unattempted(self) -> None:
        """Free the ids that a control plane which is gone had taken and not yet tried to start."""
        await self._store.run(lambda db: db.execute("DELETE FROM session WHERE agent IS NULL"))


def read_session(db: Database, account: str, session_id: str) -> Session | None:
    """Read one session within a transaction, by its id or its alias."""
    sql = f"SELECT {COLUMNS} FROM session WHERE account=:account AND id=:id"  # noqa: S608
    values = {"account": account, "id": own_id(db, account, session_id)}
    row = db.execute(sql, values).fetchone()
    return session_of(row) if row else None


def _is_to_stop(db: Database, account: str, session_id: str) -> bool:
    sql = (
        "SELECT 1 FROM session WHERE account=:account AND id=:id AND stop_requested_ms IS NOT NULL"
    )
    return db.execute(sql, {"account": account, "id": session_id}).fetchone() is not None


def _reserve(db: Database, new: NewSession) -> None:
    quota = quota_of(db, new.account)
    if quota is None:
        raise UnauthorizedError
    if own_id(db, new.account, new.id) != new.id:
        raise ConflictError(_ID_TAKEN)
    inserted = db.execute(
        "INSERT OR IGNORE INTO session(account, id, state, application, tag, location, labels,"
        " external_id, nano_cpus, memory_bytes, created_ms) VALUES (:account, :id, :state,"
        " :application, :tag, :location, :labels, :external_id, :nano_cpus, :memory_bytes,"
        " :created)",
        {
            "account": new.account,
            "id": new.id,
            "state": State.CREATED,
            "application": new.application,
            "tag": new.tag,
            "location": new.location,
            "labels": json.dumps(dict(new.labels)),
            "external_id": new.external_id,
            "nano_cpus": new.reservation.nano_cpus,
            "memory_bytes": new.reservation.memory_bytes,
            "created": new.created_ms,
        },
    )
    if inserted.rowcount == 0:
        raise ConflictError(_ID_TAKEN)
    limit = passed_limit(db, new.account, quota)
    if limit is not None:
        raise QuotaExceededError(limit)
    add_labels(db, new.account, new.id, new.labels)


def session_of(row: tuple[Any, ...]) -> Session:
    """Make a session of a row of `COLUMNS`."""
    return Session(
        account=row[0],
        id=row[1],
        internal_id=row[2],
        agent=row[3],
        confirmed=bool(row[4]),
        state=State(row[5]),
        application=row[6],
        tag=row[7],
        location=row[8],
        host=row[9],
        ports=tuple(
            Port(p["container"], Protocol(p["protocol"]), p["host"], p["tls"])
            for p in json.loads(row[10])
        ),
        labels=row[11],
        external_id=row[12],
        injected_env=row[13],
        created_ms=row[14],
        ended_ms=row[15],
        detail=row[16],
        player_count=row[17],
        alias=row[18],
    )
