"""The row of one start in the database.

| the row                        | is committed                      | a crash leaves             |
|--------------------------------|-----------------------------------|----------------------------|
| none                           |                                   | nothing                    |
| running, names a standby       | before its host is called         | a claim that is repeated   |
| created, names no host         | when no host can take it at once, | nothing: its id is freed   |
|                                | and when an attempt has failed    | by the next process        |
| created, names an attempt      | before its host is called         | what the host reports      |
| confirmed                      | when the host has answered; of a  | the session                |
|                                | claim, within 20 ms               |                            |

Each commit checks the row's stop mark. After a failed claim, one commit replaces the row by that
of the next claim or of a cold start. A failed attempt is removed from its row in a separate
commit, since the start may then wait for a host.

A host that did not answer may still have started a session. The commit that removes such an
attempt or claim from its row orders a stop of it (`tables/sessions/stop_orders`), which is sent
until the host confirms: so no unknown session runs, and no standby is claimed twice.
"""

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import AgentRefusedError, StoreError, TiltyardError
from controlplane.domain.hosts.contract import Claim
from controlplane.domain.sessions.claims import ClaimedStandby
from controlplane.domain.sessions.sessions import NewSession, Reserved
from controlplane.sessions.claim import HeldStandby
from controlplane.sessions.hold import Hold
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import sessions
from tiltyard.contract import Identity, Resources, SessionSpec
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FREE_RETRY = 1.0  # Seconds between retries after a database error


class StartRow:
    """Writes the row of one start, and releases each hold that the row no longer names."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        actor: Actor,
        account: str,
        session_id: str,
    ) -> None:
        self.actor = actor
        self.account = account
        self.id = session_id
        """The requested id, then that of the row; "" if neither is known yet."""
        self.exists = False
        """True if the row holds the id and the quota."""
        self.named: Hold | None = None
        """The attempt or claim that the row names, until it is confirmed or removed."""
        self._store = store
        self._clock = clock
        self._is_audited = False  # The audit has the session under the id of its row

    async def claim(self, claim: Claim, standby: HeldStandby) -> None:
        """Commit the row of a session that claims a standby.

        Raises:
            StoppedDuringStartError: The row of the preceding claim has the stop mark.
            UnauthorizedError: The account was removed meanwhile.
            StandbyTakenError: The standby is not available.
            ConflictError: The id is in use.
            QuotaExceededError: The session would exceed a limit of the account.
        """
        claimed = standby.claimed_by(claim)
        new = self._new(claim.identity, claim.reservation, claim.ttl, claimed)
        await self._reserve(new, None)
        self._name_instead(standby)

    async def reserve(self, spec: SessionSpec, first: Hold | None) -> None:
        """Commit the row of a cold start, and its first attempt if there is one.

        The row does not name the attempt if its agent was removed or revoked.

        Raises:
            StoppedDuringStartError: The row of the preceding claim has the stop mark.
            UnauthorizedError: The account was removed meanwhile.
            ConflictError: The id is in use.
            QuotaExceededError: The session would exceed a limit of the account.
        """
        new = self._new(spec.identity, spec.reservation, spec.ttl)
        reserved = await self._reserve(new, first)
        if first is not None and not reserved.names_first:
            first.release()
        self._name_instead(first if reserved.names_first else None)

    async def name(self, hold: Hold) -> None:
        """Commit an attempt to a row that names none, before its host is called.

        Raises:
            StoppedDuringStartError: The row has the stop mark.
            AgentRefusedError: The agent was removed or revoked; the hold is released.
        """
        self.named = hold
        first_of = None if self._is_audited else self.actor
        try:
            await self._store.run(
                sessions.begin_attempt,
                self.account,
                self.id,
                hold.attempt,
                now=self._clock.time(),
                first_of=first_of,
            )
        except AgentRefusedError:
            self._name_instead(None)
            raise
        self._is_audited = True

    async def clear(self) -> None:
        """Remove a failed attempt from the row.

        Raises:
            StoreError: The row may still name it.
        """
        if self.named is None:
            return
        await self._store.run(
            sessions.end_attempt,
            self.account,
            self.id,
            self.named.failed,
            now=self._clock.time(),
        )
        self._name_instead(None)

    def confirm(self) -> None:
        """Note that the session runs: the row is no longer that of a start."""
        if self.named is not None:
            self.named.release()
            self.named = None

    async def free(self, why: str) -> None:
        """Free the id, the quota and what the row names; retry while the database fails."""
        while True:
            try:
                await self._store.run(
                    sessions.free,
                    self.account,
                    self.id,
                    why=why,
                    now=self._clock.time(),
                    attempt=None if self.named is None else self.named.failed,
                    is_audited=self._is_audited,
                )
                break
            except StoreError as error:
                log.error(  # noqa: TRY400 - the text says it all
                    "cannot free the id yet", account=self.account, id=self.id, error=str(error)
                )
                await self._clock.sleep(FREE_RETRY)
        self._name_instead(None)

    def _new(
        self,
        identity: Identity,
        reservation: Resources,
        ttl: float | None,
        standby: ClaimedStandby | None = None,
    ) -> NewSession:
        return NewSession(identity, reservation, self._clock.time(), self.actor, ttl, standby)

    async def _reserve(self, new: NewSession, first: Hold | None) -> Reserved:
        """Commit a new row, which replaces that of a failed claim."""
        reserved = await self._store.run(
            sessions.reserve,
            new,
            failed=None if self.named is None else self.named.failed,
            first=None if first is None else first.attempt,
        )
        self.id = new.identity.session_id
        self.exists = True
        self._is_audited = reserved.is_audited
        return reserved

    def _name_instead(self, hold: Hold | None) -> None:
        """Note what the row names now, and release what it named."""
        before = self.named
        self.named = hold
        if before is not None:
            before.release()


def shown_cause(error: Exception) -> str:
    """Return the text of a failed start for its account, as its caller gets it.

    The texts of other errors than those of the API are for operators, who find them in the log.
    """
    if isinstance(error, TiltyardError):
        return str(error)
    return "the database failed" if isinstance(error, StoreError) else "internal error"
