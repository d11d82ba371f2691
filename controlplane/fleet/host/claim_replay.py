"""The claims that the database holds and a host does not know: they are made again.

A control plane that died after it wrote a claim leaves such a one, and so does a host that lost
the record of a claimed standby. The row is the truth about what was asked for.
"""

from random import Random

from controlplane.domain.errors import AgentRefusedError, AgentSilentError, StoreError
from controlplane.fleet.host.state import FIRST_RETRY, HostState
from controlplane.storage.tables.claims import ClaimStore
from controlplane.storage.tables.reports import ReportStore
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.logging.context import task_context
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

TIMEOUT = 10.0
"""A host writes the claim to its disk, and the file that tells the game."""

MAX_BACK_OFF = 2.0


class HeldClaims:
    """Owns the claims that one host is owed."""

    def __init__(
        self,
        host: HostState,
        claims: ClaimStore,
        reports: ReportStore,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._host = host
        self._claims = claims
        self._reports = reports
        self._clock = clock
        self._random = random
        self._tasks = TaskOwner[None]()

    def repeat(self, internal_id: str) -> None:
        """Claim a standby again until it is a session, or is gone. Idempotent."""
        if self._tasks.get(internal_id) is not None:
            return
        name = f"claim {internal_id} again on {self._host.name}"
        own = task_context(agent=self._host.name)
        self._tasks.start(self._repeat(internal_id), name, key=internal_id, context=own)

    async def close(self) -> None:
        """Claim nothing now."""
        await self._tasks.close()

    async def _repeat(self, internal_id: str) -> None:
        name, told = self._host.name, ""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while True:
            try:
                if await self._is_settled(internal_id):
                    return
            except (AgentRefusedError, AgentSilentError, StoreError) as error:
                if str(error) != told:
                    told = str(error)
                    log.warning(
                        "cannot claim again yet",
                        agent=name,
                        session=internal_id,
                        error=str(error),
                    )
            await back_off.wait()

    async def _is_settled(self, internal_id: str) -> bool:
        """Make the claim once, if it is still owed; True when there is no more to be done."""
        name, seen = self._host.name, self._host.session(internal_id)
        if seen is None or not seen.is_standby or internal_id in self._host.under_way:
            return True
        claim = await self._claims.held(name, internal_id)
        if claim is None:
            return True
        answer = await self._host.client.claim_session(claim, TIMEOUT)
        session = self._host.answered(internal_id, answer)
        await self._reports.settle(name, (session,), (), unix_ms(self._clock))
        log.info("claimed again", agent=name, session=internal_id)
        return True
