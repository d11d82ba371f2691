"""Attempts and claims that a host did not answer; each may still have started a session.

The commit that removes one from its row records it as unanswered. Its host is asked to stop it
until it confirms: so no unknown session runs, and no standby is claimed twice.
"""

from controlplane.domain.errors import StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.sessions.under_way import Start, Trial
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import sessions
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FREE_RETRY = 1.0  # Seconds between retries after a database error


class Unanswered:
    """Ends attempts and claims without an answer: records them, and has their sessions stopped."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock

    def drop(self, trial: Trial) -> None:
        """Release a trial that no row names any more, and stop what it may have started."""
        if trial.is_unanswered:
            self._fleet.stop_session(trial.attempt.agent, trial.attempt.internal_id)
        trial.release()

    async def end_attempt(self, start: Start, trial: Trial) -> None:
        """Remove a failed attempt from the row of a start.

        Raises:
            StoreError: The row may still name it.
        """
        await self._store.run(
            sessions.end_attempt,
            start.account,
            start.id,
            trial.attempt,
            now=self._clock.time(),
            unanswered=trial.is_unanswered,
        )
        self.drop(trial)

    async def free(self, start: Start, why: str) -> None:
        """Free the id and quota of a start; retry while the database fails."""
        trial = start.trial
        while True:
            try:
                await self._store.run(
                    sessions.free,
                    start.account,
                    start.id,
                    why=why,
                    now=self._clock.time(),
                    attempt=trial.attempt if trial is not None else None,
                    unanswered=trial is not None and trial.is_unanswered,
                    is_recorded=start.is_recorded,
                )
                break
            except StoreError as error:
                log.error(  # noqa: TRY400 - the text says it all
                    "cannot free the id yet", account=start.account, id=start.id, error=str(error)
                )
                await self._clock.sleep(FREE_RETRY)
        if trial is not None:
            self.drop(trial)
