"""The claims that the database holds and a host does not know: they are made again.

A control plane that died after it wrote a claim leaves such a one, and so does a host that lost
the record of a claimed standby. The row is the truth about what was asked for.
"""

from functools import partial

from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.claims import held_claim
from controlplane.storage.tables.reports import Reports
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

TIMEOUT = 10.0
"""A host writes the claim to its disk, and the file that tells the game."""


class ClaimReplay:
    """Makes claims of one host again."""

    def __init__(
        self,
        host: HostState,
        store: Store,
        reports: Reports,
        deliveries: Deliveries,
        clock: Clock,
    ) -> None:
        self._host = host
        self._store = store
        self._reports = reports
        self._deliveries = deliveries
        self._clock = clock

    def start(self, internal_id: str) -> None:
        """Claim a standby again until it is a session, or is gone. Idempotent."""
        if self._deliveries.get("claim", internal_id) is None:
            self._deliveries.start(
                "claim",
                internal_id,
                attempt=partial(self._attempt, internal_id),
                failed=partial(log.warning, "cannot claim again yet", session=internal_id),
            )

    async def _attempt(self, internal_id: str) -> None:
        """Make the claim once if the host still lacks it."""
        name, seen = self._host.name, self._host.session(internal_id)
        if seen is None or not seen.is_standby or internal_id in self._host.under_way:
            return
        claim = await self._store.look(held_claim, name, internal_id)
        if claim is None:
            return
        answer = await self._host.client.claim_session(claim, TIMEOUT)
        session = self._host.answered(internal_id, answer)
        await self._reports.write(name, (session,), self._clock.time())
        log.info("claimed again", session=internal_id)
