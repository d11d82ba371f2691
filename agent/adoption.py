"""Records against the engine: adoption at the start, then orphans, retention and images.

Events are hints (M7) and the engine's list is the truth, so a pass over everything runs every
PASS_SECONDS whatever was heard. Only containers that carry this agent's id are ever touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

from agent.engine import LABEL_SESSION, Container, EngineInfo
from agent.errors import AgentError
from agent.host import RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS, Host
from agent.images import Images
from agent.session import Session
from agent.sessions import SessionManager

log = logging.getLogger(__name__)

PASS_SECONDS = 10.0
ORPHAN_GRACE_SECONDS = 60.0
"""How long a container without a record is left alone: a call of ours may still be on its way."""


class Reconciler:
    """Compares what is recorded with what is there, at the start and for ever after.

    `learn` is told what the engine is whenever it answers again. `container_retention` and
    `log_retention` are seconds after the end of a session.
    """

    def __init__(
        self,
        host: Host,
        sessions: SessionManager,
        images: Images,
        *,
        learn: Callable[[EngineInfo], None],
        container_retention: float,
        log_retention: float,
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._images = images
        self._learn = learn
        self._container_retention = container_retention
        self._log_retention = log_retention
        self._orphans: dict[str, float] = {}
        self.engine_available = False
        """True when the engine answered the last pass."""

    async def run(self) -> None:
        """Adopt as soon as the engine answers, then pass over everything again and again."""
        wait = RETRY_FIRST_SECONDS
        while True:
            try:
                await self.pass_once()
            except AgentError as error:
                self._set_available(available=False, why=str(error))
                await self._host.clock.sleep(wait)
                wait = min(wait * 2, RETRY_LONGEST_SECONDS)
            else:
                wait = RETRY_FIRST_SECONDS
                await self._host.clock.sleep(PASS_SECONDS)

    async def pass_once(self) -> None:
        """One pass; raises the engine's errors."""
        if not self.engine_available:
            self._learn(await self._host.engine.info())
        listed = await self._host.engine.list(self._host.settings.agent_id)
        containers = [found for found in listed if LABEL_SESSION in found.labels]
        self._set_available(available=True)
        await self._images.refresh()
        if not self._sessions.reconciled:
            await self._sessions.adopt(containers)
        await self._reap(containers)
        await self._retain()

    async def _reap(self, containers: list[Container]) -> None:
        """Remove containers of ours that no session answers for, once they are old enough."""
        now = self._host.clock.monotonic()
        unknown = [
            found for found in containers if not self._sessions.knows(found.labels[LABEL_SESSION])
        ]
        self._orphans = {
            found.container: self._orphans.get(found.container, now) for found in unknown
        }
        for found in unknown:
            if now - self._orphans[found.container] >= ORPHAN_GRACE_SECONDS:
                log.warning("removing container %s: no session answers for it", found.name)
                await self._try(self._host.engine.remove(found.container))

    async def _retain(self) -> None:
        """Remove ended containers, and later what is known of their sessions (decisions.md)."""
        now = self._host.clock.time()
        for session in self._sessions.all():
            if session.state.ended and session.end_time is not None:
                await self._age(session, now - session.end_time)

    async def _age(self, session: Session, age: float) -> None:
        safe = session.log_sealed and not session.container_removed
        if safe and age >= self._container_retention:
            await self._try(self._sessions.life(session.internal_id).forget_container())
        if session.container_removed and age >= self._log_retention:
            await self._sessions.forget(session.internal_id)

    async def _try(self, work: Coroutine[None, None, None]) -> None:
        """Do one thing; its failure holds up nothing else and comes again with the next pass."""
        try:
            await work
        except AgentError as error:
            log.warning("%s", error)

    def _set_available(self, *, available: bool, why: str = "") -> None:
        if available != self.engine_available:
            self.engine_available = available
            self._host.feed.tell_host()
            if available:
                log.info("the engine answers")
        if why:
            log.warning("cannot compare records with the engine: %s", why)


class Timekeeper:
    """Ends sessions whose lifetime is over."""

    LONGEST_SLEEP_SECONDS = 1.0
    """A deadline set meanwhile is at least a minute away; a suspended machine wakes late."""

    def __init__(self, host: Host, sessions: SessionManager) -> None:
        self._host = host
        self._sessions = sessions

    async def run(self) -> None:
        """Sleep to the next deadline, for ever."""
        clock = self._host.clock
        while True:
            soonest = clock.boottime() + self.LONGEST_SLEEP_SECONDS
            due = self._host.deadlines.next_due()
            await clock.sleep_until_boottime(soonest if due is None else min(due, soonest))
            self._sessions.expire_due()
