"""Enrolment of agents, their certificates and authorities in the database."""

from dataclasses import asdict

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.access.enrolment import (
    BadEnrolmentTokenError,
    EnrolmentRequest,
    Issued,
    Place,
)
from controlplane.domain.access.tokens import NewToken, PresentedToken, matches
from controlplane.domain.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    Violation,
)
from controlplane.domain.events.agents import (
    AgentEnrolled,
    AgentRenewed,
    AgentRevoked,
    AuthorityFinished,
    AuthorityRotated,
    EnrolmentTokenCreated,
)
from controlplane.domain.hosts.agents import Agent
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row
from controlplane.storage.tables.hosts.fleet import (
    IN_SERVICE,
    agents,
    get_agent,
    void_tokens,
)
from controlplane.storage.tables.sessions.session_ends import lose_sessions
from tiltyard.runtime.clock import to_ms

_NAME_TAKEN = "there is an agent of this name: choose another, or use a token for this agent"

TOKENS_KEPT = 24 * 3600  # Seconds that an ended token is kept, so that the log can name its fault


def enrolled(db: Database) -> int:
    """Count the agents that hold a certificate of this control plane."""
    return sum(agent.id is not None for agent in agents(db))


def make_token(
    db: Database, token: NewToken, wanted: Place, *, actor: Actor, now: float, expire: float
) -> None:
    """Store a token for one host of a region and node pool; remove old ones.

    Raises:
        NotFoundError: There is no such region or node pool.
    """
    _check_place(db, wanted)
    before = {"before": to_ms(now - TOKENS_KEPT)}
    db.execute("DELETE FROM enrolment_token WHERE expire_ms < :before", before)
    stored = {"id": token.token_id, "secret_hash": token.secret_hash, "expire_ms": to_ms(expire)}
    write_row(db, "enrolment_token", stored | asdict(wanted))
    db.append(EnrolmentTokenCreated("", token.token_id, actor, now, **asdict(wanted)))


def place_of(db: Database, agent: str) -> Place:
    """Read an enrolled agent's place.

    Raises:
        NotFoundError: None of that name is enrolled.
    """
    row = get_agent(db, agent)
    if row.id is None or row.revoked is not None:
        raise NotFoundError("agent", agent)
    return Place(row.region, row.node_pool, agent)


def enrol(
    db: Database,
    presented: PresentedToken,
    request: EnrolmentRequest,
    *,
    agent_id: str,
    issued: Issued,
    address: str,
    now: float,
) -> Agent:
    """Consume a token and create its agent; `address` is the client's.

    Raises:
        BadEnrolmentTokenError: The token is invalid.
        InvalidRequestError: It is for another region, node pool or agent than the host names.
        ConflictError: There is an agent of this name, and the token is not for it.
    """
    place = _place_of_token(db, presented, now)
    _check_fit(place, request)
    _check_name(db, place, request)
    row = {
        "name": request.name,
        "address": request.address,
        "region": place.region,
        "node_pool": place.node_pool,
        "id": agent_id,
        "certificate_serial": issued.serial,
        "certificate_expire_ms": to_ms(issued.expire),
        "authority": issued.authority,
    }
    write_row(db, "agent", row | IN_SERVICE, "name")
    used = {"id": presented.token_id, "now": to_ms(now)}
    db.execute("UPDATE enrolment_token SET used_ms=:now WHERE id=:id", used)
    void_tokens(db, request.name, now)
    db.changed(Topic.HOST, request.name)
    db.append(
        AgentEnrolled(
            "",
            request.name,
            Actor(presented.token_id, address),
            now,
            region=place.region,
            node_pool=place.node_pool,
            serial=issued.serial,
        )
    )
    return get_agent(db, request.name)


def renewed(db: Database, row: Agent, serial: str, now: float) -> None:
    """Record an agent's installed certificate and the authorities it trusts."""
    expire_ms = to_ms(row.certificate_expire)
    changed = db.execute(
        "UPDATE agent SET certificate_serial=:serial, authority=:authority,"
        " certificate_expire_ms=:expire, trusts_former=:trusts_former WHERE id=:id",
        {**asdict(row), "serial": serial, "expire": expire_ms},
    )
    if changed.rowcount:
        db.changed(Topic.HOST, row.name)
        db.append(
            AgentRenewed(
                "",
                row.name,
                ITSELF,
                now,
                serial=serial,
                expires=expire_ms,
                authority=row.authority,
            )
        )


def revoke(db: Database, name: str, actor: Actor, now: float) -> None:
    """Revoke an agent; its host's sessions are lost: `lose_sessions` ends them. Idempotent.

    Raises:
        NotFoundError: No agent has this name.
        ConflictError: It has no certificate: the settings file declares it.
    """
    agent = get_agent(db, name)
    if agent.id is None:
        text = f"the agent {name!r} has no certificate: the settings file declares it"
        raise ConflictError(text)
    if agent.revoked is None:
        sql = "UPDATE agent SET revoked_ms=:now WHERE name=:name"
        db.execute(sql, {"name": name, "now": to_ms(now)})
        void_tokens(db, name, now)
        db.changed(Topic.HOST, name)
        db.append(AgentRevoked("", name, actor, now))


def end_sessions_on_revoked(db: Database, now: float) -> int:
    """End a portion of what a previous process left on revoked hosts; return how many.

    Those are its starts, and the sessions that it did not end before it was killed.
    """
    for agent in agents(db, revoked=True):
        ended = lose_sessions(db, agent.name, now, starts_too=True)
        if ended:
            return ended
    return 0


def trusts_one_authority(db: Database, agent_id: str) -> None:
    """Record that a host trusts only its certificate's authority."""
    sql = "UPDATE agent SET trusts_former=FALSE WHERE id=:id RETURNING name"
    for (name,) in db.execute(sql, {"id": agent_id}).fetchall():
        db.changed(Topic.HOST, name)


def rotated(db: Database, authority: str, actor: Actor, now: float, *, compromised: bool) -> None:
    """Record that an authority replaces another, before it does.

    If that is `compromised`, all tokens are void: hosts may have sent them to a holder of its key.
    """
    if compromised:
        sql = "UPDATE enrolment_token SET expire_ms=:now WHERE expire_ms>:now"
        db.execute(sql, {"now": to_ms(now)})
    db.append(AuthorityRotated("", authority, actor, now, compromised=compromised))


def finished(db: Database, authority: str, actor: Actor, now: float, *, left: list[str]) -> None:
    """Record that the former authority is no longer trusted, by the agents in `left` neither."""
    db.append(AuthorityFinished("", authority, actor, now, left=left))


def _check_place(db: Database, place: Place) -> None:
    values = {"region": place.region, "node_pool": place.node_pool}
    if not db.execute("SELECT 1 FROM region WHERE name=:region", values).fetchone():
        raise NotFoundError("region", place.region)
    if not db.execute("SELECT 1 FROM node_pool WHERE name=:node_pool", values).fetchone():
        raise NotFoundError("node pool", place.node_pool)


def _place_of_token(db: Database, presented: PresentedToken, now: float) -> Place:
    found = db.execute(
        "SELECT secret_hash, region, node_pool, agent, expire_ms, used_ms FROM enrolment_token"
        " WHERE id=:id",
        {"id": presented.token_id},
    ).fetchone()
    if not matches(presented, found and found[0]):
        raise BadEnrolmentTokenError("it is unknown")
    _, region, node_pool, again, expire_ms, used_ms = found
    if used_ms is not None:
        raise BadEnrolmentTokenError("it was used before")
    if to_ms(now) >= expire_ms:
        raise BadEnrolmentTokenError("it has expired")
    place = Place(region, node_pool, again)
    try:
        _check_place(db, place)
    except NotFoundError as error:
        raise BadEnrolmentTokenError(f"its {error.kind} is gone") from error
    return place


def _check_name(db: Database, place: Place, request: EnrolmentRequest) -> None:
    """Reject a name in use, and re-enrolment of an agent that is not enrolled."""
    try:
        found = get_agent(db, request.name)
    except NotFoundError:
        found = None
    if place.agent is None:
        if found is not None:
            raise ConflictError(_NAME_TAKEN)
    elif found is None or found.id is None or found.revoked is not None:
        why = "its agent was removed or revoked, or is declared in the settings file"
        raise BadEnrolmentTokenError(why)


def _check_fit(place: Place, request: EnrolmentRequest) -> None:
    named = {
        "region": (request.region, place.region),
        "nodePool": (request.node_pool, place.node_pool),
        "name": (request.name, place.agent),
    }
    for field, (wanted, meant) in named.items():
        if wanted is not None and meant is not None and wanted != meant:
            raise InvalidRequestError((Violation(field, f"the token is for {meant}"),))
