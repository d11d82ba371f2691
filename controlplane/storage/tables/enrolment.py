"""Enrolling agents, and what becomes of their certificates, in the database."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlite_utils import Database

from controlplane.domain.tokens import NewToken, PresentedToken, matches
from controlplane.storage.engine.store import ITSELF, Actor, Event, Store, record_event
from controlplane.storage.tables.fleet import AGENT_COLUMNS, AgentRow
from controlplane.storage.tables.session_ends import drop_starts, lose_sessions

TOKENS_KEPT_MS = 24 * 3600 * 1000
"""An ended token is known for a day, so that the log can say what was tried with it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the host of a token belongs; `agent` is set when it enrols again."""

    region: str
    node_pool: str
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An agent that wants to be enrolled, with the certificate that was signed for it.

    `region` and `node_pool` are where it believes to belong, None where it does not care.
    """

    name: str
    address: str
    region: str | None
    node_pool: str | None
    id: str
    serial: str
    expire_ms: int
    authority: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that a token was to name is not there."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class BadToken:
    """The token does not enrol; `why` is for the log alone."""

    why: str


@dataclass(frozen=True, slots=True)
class WrongPlace:
    """The token is for another region, node pool or agent than the host names."""

    field: str
    meant: str


@dataclass(frozen=True, slots=True)
class NameTaken:
    """There is an agent of this name, and the token is not for it."""


@dataclass(frozen=True, slots=True)
class NotEnrolled:
    """The agent has no certificate: the settings file declares it."""


@dataclass(frozen=True, slots=True)
class RevokedAgent:
    """An agent that was revoked and not yet removed."""

    row: AgentRow
    revoked_ms: int


class EnrolmentStore:
    """Transactions on enrolment tokens, certificates and their revocation."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def enrolled(self) -> int:
        """Count the agents that hold a certificate of ours."""
        sql = (
            "SELECT count(*) FROM agent WHERE id IS NOT NULL AND removed_ms IS NULL"
            " AND revoked_ms IS NULL"
        )
        return int(await self._store.run(lambda db: db.execute(sql).fetchone()[0]))

    async def make_token(
        self, token: NewToken, wanted: Place, actor: Actor, now_ms: int, expire_ms: int
    ) -> Unknown | None:
        """Keep a token for one host of a region and node pool, and forget old ones."""

        def transaction(db: Database) -> Unknown | None:
            unknown = _unknown(db, wanted)
            if unknown is not None:
                return unknown
            db.execute(
                "DELETE FROM enrolment_token WHERE expire_ms < ?", (now_ms - TOKENS_KEPT_MS,)
            )
            db.execute(
                "INSERT INTO enrolment_token(id, secret_hash, region, node_pool, agent, expire_ms)"
                " VALUES (?,?,?,?,?,?)",
                (
                    *(token.token_id, token.secret_hash, wanted.region, wanted.node_pool),
                    *(wanted.agent, expire_ms),
                ),
            )
            event = Event(now_ms, "agent.token_created", "", actor, token.token_id)
            place = {"region": wanted.region, "nodePool": wanted.node_pool, "agent": wanted.agent}
            record_event(db, event, place)
            return None

        return await self._store.run(transaction)

    async def place_of(self, agent: str) -> Place | None:
        """Read where an enrolled agent belongs; None when there is none of that name."""
        sql = (
            "SELECT region, node_pool, name FROM agent WHERE name=? AND id IS NOT NULL"
            " AND removed_ms IS NULL AND revoked_ms IS NULL"
        )

        def transaction(db: Database) -> Place | None:
            row = db.execute(sql, (agent,)).fetchone()
            return Place(*row) if row else None

        return await self._store.run(transaction)

    async def enrol(
        self,
        presented: PresentedToken,
        newcomer: Newcomer,
        address: str,
        now_ms: int,
        then: Callable[[AgentRow | BadToken | WrongPlace | NameTaken], None],
    ) -> AgentRow | BadToken | WrongPlace | NameTaken:
        """Consume a token and make its agent, in one transaction, or neither.

        `address` is where the request came from. `then` is told the outcome once it is so, even
        when the caller is gone.
        """
        return await self._store.run(
            lambda db: _enrol(db, presented, newcomer, address, now_ms), then
        )

    async def renewed(self, row: AgentRow, serial: str, now_ms: int) -> None:
        """Write that an agent has installed another certificate, and whom it trusts since."""
        expire_ms, authority = row.certificate_expire_ms, row.authority

        def transaction(db: Database) -> None:
            changed = db.execute(
                "UPDATE agent SET certificate_serial=?, certificate_expire_ms=?, authority=?,"
                " trusts_former=? WHERE id=?",
                (serial, expire_ms, authority, row.trusts_former, row.id),
            )
            if changed.rowcount:
                event = Event(now_ms, "agent.renewed", "", ITSELF, row.name)
                told = {"serial": serial, "expires": expire_ms, "authority": authority}
                record_event(db, event, told)

        await self._store.run(transaction)

    async def revoke(
        self, name: str, actor: Actor, now_ms: int, then: Callable[[object], None]
    ) -> RevokedAgent | NotEnrolled | None:
        """Have an agent trusted no more; what runs on its host is lost. Idempotent.

        None when there is none of that name. `then` is told the outcome once it is so.
        """
        return await self._store.run(lambda db: _revoke(db, name, actor, now_ms), then)

    async def revoked(self) -> list[RevokedAgent]:
        """Read the agents that were revoked and not removed, by name."""
        sql = (
            f"SELECT {AGENT_COLUMNS}, revoked_ms FROM agent WHERE revoked_ms IS NOT NULL"  # noqa: S608
            " AND removed_ms IS NULL ORDER BY name"
        )
        return await self._store.read(
            sql, (), lambda row: RevokedAgent(AgentRow(*row[:-1]), row[-1])
        )

    async def drop_starts_on_revoked(self, now_ms: int) -> None:
        """Settle what a control plane that is gone was starting on hosts that were revoked."""

        def transaction(db: Database) -> None:
            revoked = "SELECT name FROM agent WHERE revoked_ms IS NOT NULL AND removed_ms IS NULL"
            for (name,) in db.execute(revoked).fetchall():
                drop_starts(db, name, now_ms)
                lose_sessions(db, name, now_ms)

        await self._store.run(transaction)


def void_tokens(db: Database, agent: str, now_ms: int) -> None:
    """Have the tokens for an agent enrol nobody: neither it once more nor another of its name."""
    db.execute(
        "UPDATE enrolment_token SET expire_ms=? WHERE agent=? AND expire_ms>?",
        (now_ms, agent, now_ms),
    )


def void_all_tokens(db: Database, now_ms: int) -> None:
    """Have no token that was made so far enrol anybody."""
    db.execute("UPDATE enrolment_token SET expire_ms=? WHERE expire_ms>?", (now_ms, now_ms))


def _unknown(db: Database, place: Place) -> Unknown | None:
    if not db.execute("SELECT 1 FROM region WHERE name=?", (place.region,)).fetchone():
        return Unknown("region", place.region)
    if not db.execute("SELECT 1 FROM node_pool WHERE name=?", (place.node_pool,)).fetchone():
        return Unknown("node pool", place.node_pool)
    return None


def _enrol(
    db: Database, presented: PresentedToken, newcomer: Newcomer, address: str, now_ms: int
) -> AgentRow | BadToken | WrongPlace | NameTaken:
    place = _place_of_token(db, presented, now_ms)
    if isinstance(place, BadToken):
        return place
    refusal = _misfit(place, newcomer) or _taken(db, place, newcomer)
    if refusal is not None:
        return refusal
    row = _write(db, place, newcomer)
    db.execute("UPDATE enrolment_token SET used_ms=? WHERE id=?", (now_ms, presented.token_id))
    void_tokens(db, row.name, now_ms)
    event = Event(now_ms, "agent.enrolled", "", Actor(presented.token_id, address), newcomer.name)
    named = {"region": row.region, "nodePool": row.node_pool, "serial": newcomer.serial}
    record_event(db, event, named)
    return row


def _place_of_token(db: Database, presented: PresentedToken, now_ms: int) -> Place | BadToken:
    found = db.execute(
        "SELECT secret_hash, region, node_pool, agent, expire_ms, used_ms FROM enrolment_token"
        " WHERE id=?",
        (presented.token_id,),
    ).fetchone()
    if not matches(presented, found and found[0]):
        return BadToken("nobody knows it")
    _, region, node_pool, again, expire_ms, used_ms = found
    if used_ms is not None:
        return BadToken("it was used before")
    if now_ms >= expire_ms:
        return BadToken("it has expired")
    place = Place(region, node_pool, again)
    gone = _unknown(db, place)
    return place if gone is None else BadToken(f"its {gone.kind} is gone")


def _taken(db: Database, place: Place, newcomer: Newcomer) -> BadToken | NameTaken | None:
    """Tell why a name cannot be had: by a new agent, or by the one that enrols again."""
    found = db.execute(
        "SELECT id, revoked_ms FROM agent WHERE name=? AND removed_ms IS NULL", (newcomer.name,)
    ).fetchone()
    if place.agent is None:
        return None if found is None else NameTaken()
    if found is None or found[0] is None or found[1] is not None:
        return BadToken("its agent was removed or revoked, or is declared by now")
    return None


def _misfit(place: Place, newcomer: Newcomer) -> WrongPlace | None:
    named = {
        "region": (newcomer.region, place.region),
        "nodePool": (newcomer.node_pool, place.node_pool),
        "name": (newcomer.name, place.agent),
    }
    for field, (wanted, meant) in named.items():
        if wanted is not None and meant is not None and wanted != meant:
            return WrongPlace(field, meant)
    return None


def _write(db: Database, place: Place, newcomer: Newcomer) -> AgentRow:
    db.execute(
        "INSERT INTO agent(name, address, region, node_pool, id, certificate_expire_ms,"
        " certificate_serial, authority) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT(name) DO UPDATE SET"
        " address=excluded.address, region=excluded.region, node_pool=excluded.node_pool,"
        " id=excluded.id, certificate_expire_ms=excluded.certificate_expire_ms,"
        " certificate_serial=excluded.certificate_serial, removed_ms=NULL, revoked_ms=NULL,"
        " authority=excluded.authority, trusts_former=0",
        (
            *(newcomer.name, newcomer.address, place.region, place.node_pool, newcomer.id),
            *(newcomer.expire_ms, newcomer.serial, newcomer.authority),
        ),
    )
    sql = f"SELECT {AGENT_COLUMNS} FROM agent WHERE name=?"  # noqa: S608  # constants
    return AgentRow(*db.execute(sql, (newcomer.name,)).fetchone())


def _revoke(
    db: Database, name: str, actor: Actor, now_ms: int
) -> RevokedAgent | NotEnrolled | None:
    found = db.execute(
        f"SELECT {AGENT_COLUMNS}, revoked_ms FROM agent WHERE name=? AND removed_ms IS NULL",  # noqa: S608
        (name,),
    ).fetchone()
    if found is None:
        return None
    row, revoked_ms = AgentRow(*found[:-1]), found[-1]
    if row.id is None:
        return NotEnrolled()
    if revoked_ms is None:
        revoked_ms = now_ms
        db.execute("UPDATE agent SET revoked_ms=? WHERE name=?", (now_ms, name))
        lose_sessions(db, name, now_ms)
        void_tokens(db, name, now_ms)
        record_event(db, Event(now_ms, "agent.revoked", "", actor, name))
    return RevokedAgent(row, revoked_ms)
