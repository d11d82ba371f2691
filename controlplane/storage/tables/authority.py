"""Which authority hosts belong to, in the database."""

from sqlite_utils import Database

from controlplane.storage.engine.store import Actor, Event, Store, record_event
from controlplane.storage.tables.enrolment import void_all_tokens


class AuthorityStore:
    """Transactions on the authorities of hosts, and what operators did about them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note_first(self, authority: str) -> None:
        """Write which one signed the certificates of before there could be a second."""
        sql = "UPDATE agent SET authority=? WHERE id IS NOT NULL AND authority IS NULL"
        await self._store.run(lambda db: db.execute(sql, (authority,)))

    async def trusts_one(self, agent_id: str) -> None:
        """Write that a host trusts the authority of its certificate alone."""
        sql = "UPDATE agent SET trusts_former=0 WHERE id=?"
        await self._store.run(lambda db: db.execute(sql, (agent_id,)))

    async def rotated(
        self, authority: str, actor: Actor, now_ms: int, *, compromised: bool
    ) -> None:
        """Write that an authority is to take the place of another: before it does.

        Where that one is compromised nobody enrols by tokens that name it: hosts may have told
        them to whoever has its key.
        """

        def transaction(db: Database) -> None:
            if compromised:
                void_all_tokens(db, now_ms)
            event = Event(now_ms, "authority.rotated", "", actor, authority)
            record_event(db, event, {"compromised": compromised})

        await self._store.run(transaction)

    async def finished(self, authority: str, actor: Actor, now_ms: int, left: list[str]) -> None:
        """Write that an authority is to be trusted alone, and which agents it leaves behind."""

        def transaction(db: Database) -> None:
            event = Event(now_ms, "authority.finished", "", actor, authority)
            record_event(db, event, {"left": left})

        await self._store.run(transaction)
