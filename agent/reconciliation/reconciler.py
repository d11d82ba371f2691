"""Reconciliation of records with the engine: adoption, orphans, retention and images.

Events are hints and the engine's list is the truth, so a pass over everything runs every
PASS_SECONDS. Only containers with this agent's label are touched.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from functools import partial

from agent.domain.containers.engine import LABEL_INIT, Container, EngineInfo
from agent.domain.containers.owners import Owned, assign
from agent.domain.errors import AgentError
from agent.domain.sessions import retention
from agent.domain.sessions.retention import Due, Rules
from agent.images.images import Images
from agent.kernel.disks import Disks
from agent.reconciliation.adoption import Adoption
from agent.reconciliation.recovery import Recovery
from agent.sessions import cleanup
from agent.sessions.manager import SessionManager
from agent.sessions.runtime import Runtime
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS, BackOff
from tiltyard.runtime.clock import is_trusted
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner, first_completed

log = get_logger(__name__)

PASS_SECONDS = 10.0
PASS_APART_SECONDS = 1.0  # Shortest pause between two passes
ORPHAN_GRACE_SECONDS = 60.0
"""Age at which a container without a record is removed; its creation may be in progress."""
REMOVED_AT_ONCE = 4  # Concurrent removals of containers and logs; an engine takes 0.1 s for each


class Reconciler:
    """Reconciles records with containers; calls `learn` when the engine becomes available."""

    def __init__(
        self,
        runtime: Runtime,
        disks: Disks,
        sessions: SessionManager,
        recovery: Recovery,
        *,
        images: Images,
        prepared: Adoption,
        learn: Callable[[EngineInfo], None],
        keep_init: Callable[[Collection[str]], None],
    ) -> None:
        """`keep_init` keeps the init programs in use, and the agent's own, on the disk; blocks."""
        self._runtime = runtime
        self._disks = disks
        self._sessions = sessions
        self._recovery = recovery
        self._images = images
        self._prepared = prepared
        self._learn = learn
        self._keep_init = keep_init
        self._rules = Rules(
            container_seconds=runtime.settings.container_retention_hours * 3600,
            log_seconds=runtime.settings.log_retention_days * 86400,
        )
        self._orphans: dict[str, float] = {}
        self._chores = TaskOwner[None]()
        self._removals = asyncio.Semaphore(REMOVED_AT_ONCE)
        self._stuck: set[str] = set()  # Sessions whose last removal failed
        self._hint = asyncio.Event()
        self.engine_available = False  # True if the engine answered the last pass

    async def run(self) -> None:
        """Adopt as soon as the engine answers, then repeat passes until cancelled."""
        back_off = BackOff(self._runtime.clock)
        while True:
            self._hint.clear()
            try:
                with self._runtime.metrics.reconciling(self._runtime.clock):
                    await self.pass_once()
            except AgentError as error:
                self._set_available(available=False, why=str(error))
                await back_off.wait()
            except Exception:
                log.exception("reconciliation failed: internal error")
                await self._runtime.clock.sleep(RETRY_LONGEST_SECONDS)
            else:
                back_off.reset()
                await self._runtime.clock.sleep(PASS_APART_SECONDS)
                rest = self._runtime.clock.sleep(PASS_SECONDS - PASS_APART_SECONDS)
                await first_completed(self._hint.wait(), rest, "next-pass")

    async def listen(self) -> None:
        """Request a pass after each subscription and on events without a live session."""
        runtime = self._runtime
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                async with runtime.engine.events(runtime.agent_id) as changed:
                    self._hint.set()
                    async for internal_id in changed:
                        back_off.reset()
                        life = self._sessions.find(internal_id)
                        if life is None or life.session.state.ended:
                            self._hint.set()
            except AgentError as error:
                log.debug("cannot read the engine's events", error=str(error))
            except Exception:
                log.exception("cannot read the engine's events: internal error")
            await back_off.wait()

    async def close(self) -> None:
        """Cancel the chores in progress; the next run of the agent repeats them."""
        await self._chores.close()

    async def pass_once(self) -> None:
        """Run one pass; raises the engine's errors.

        Work that it finds runs in the background, one chore at a time per container, so that a
        hanging container blocks nothing else.
        """
        if not self.engine_available:
            self._learn(await self._runtime.engine.info())
        listed = await self._runtime.engine.list(self._runtime.agent_id)
        self._set_available(available=True)
        image_error = None
        try:
            await self._images.refresh()
        except AgentError as error:  # must not block adoption
            image_error = error
        is_first = not self._sessions.reconciled
        if is_first:
            await self._take_over(listed)
        owned, _ = assign(listed, self._sessions.each())
        await self._recovery.retry(owned)
        self._reap(owned)
        self._end_leftovers(owned)
        await self._keep_programs(listed)
        await self._retain()
        if is_trusted(self._runtime.clock):
            await self._recovery.sweep(self._runtime.clock.time() - self._rules.log_seconds)
        if not is_first:
            await self._prepared.adopt(listed)
        if image_error is not None:
            raise image_error

    async def _take_over(self, listed: list[Container]) -> None:
        """Adopt the sessions and containers of an earlier run of the agent, then admit starts.

        Prepared containers come first, since a start may take one or need its ports. If a prepared
        container hangs, starts wait for one call to it.
        """
        self._prepared.hold_ports(listed)
        await self._recovery.adopt(listed)
        try:
            await self._prepared.adopt(listed)
        except AgentError as error:
            log.warning("prepared containers are adopted later", error=str(error))
        self._sessions.reconciled = True
        log.info("reconciled", sessions=len(self._sessions.lives), containers=len(listed))
        self._runtime.feed.request_snapshot()

    def _reap(self, owned: list[Owned]) -> None:
        """Remove orphaned containers after ORPHAN_GRACE_SECONDS."""
        now = self._runtime.clock.monotonic()
        unknown = [each for each in owned if self._sessions.find(each.internal_id) is None]
        ids = [each.container.container for each in unknown]
        self._orphans = {orphan: self._orphans.get(orphan, now) for orphan in ids}
        for internal_id, found in unknown:
            if not self._recovery.may_reap(internal_id, found):
                continue
            if now - self._orphans[found.container] >= ORPHAN_GRACE_SECONDS:
                log.warning("removing an orphaned container", container=found.name)
                self._do(found.container, self._runtime.engine.remove(found.container))

    def _end_leftovers(self, owned: list[Owned]) -> None:
        """Kill running containers of ended sessions; adopt containers that reappeared."""
        for internal_id, found in owned:
            life = self._sessions.find(internal_id)
            if life is None or not life.started or life.session.holds_reservation:
                continue
            if found.process is not None:
                log.warning("killing a leftover", container=found.name, session=internal_id)
                self._do(found.container, self._runtime.engine.kill(found.container, "SIGKILL"))
            elif life.session.container_removed:
                self._do(
                    internal_id,
                    cleanup.take_back(self._runtime, self._disks, life, found.container),
                )

    async def _keep_programs(self, containers: list[Container]) -> None:
        """Keep the init programs that containers refer to: they are mounted at each start."""
        used = {found.labels.get(LABEL_INIT, "") for found in containers}
        try:
            await self._runtime.records.run(self._keep_init, used)
        except OSError as error:
            log.warning("cannot write the init of containers", error=str(error))

    async def _retain(self) -> None:
        """Remove the ended sessions, containers and logs that are due, by age or a full disk."""
        runtime = self._runtime
        disks = self._disks
        before = self._disks.warnings
        await runtime.records.run(disks.look)
        over = [each for each in self._sessions.each() if each.state.ended]
        ended = retention.with_ages(over, runtime.clock)
        for _, session in ended:
            unrecorded = session.internal_id in runtime.records.unrecorded
            sealed = session.log_sealed or session.container_removed
            if unrecorded and sealed and session.process is None:  # its task has finished
                life = self._sessions.life(session.internal_id)
                self._do(session.internal_id, cleanup.record(life))
        shortage = disks.take_shortage()
        self._stuck &= {session.internal_id for _, session in ended}
        found = retention.due(
            ended,
            self._rules,
            shortage=shortage,
            is_read=runtime.records.is_read,
            stuck=self._stuck,
        )
        disks.nothing_left = found.nothing_left
        for internal_id in found.containers:
            life = self._sessions.life(internal_id)
            self._remove(found, internal_id, partial(cleanup.remove_container, runtime, life))
        for internal_id in found.logs:
            life = self._sessions.life(internal_id)
            self._remove(found, internal_id, partial(cleanup.drop_log, runtime, life))
        for internal_id in found.sessions:
            self._remove(found, internal_id, partial(self._sessions.forget, internal_id))
        if disks.warnings != before:
            runtime.feed.host_changed()

    def _remove(
        self, due: Due, internal_id: str, work: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        """Start a removal, and log it if it is early."""
        if self._do(internal_id, self._removal(internal_id, work)) and internal_id in due.early:
            what = "container" if internal_id in due.containers else "log"
            log.warning("removed early to free disk space", session=internal_id, part=what)

    async def _removal(
        self, internal_id: str, work: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        async with self._removals:
            try:
                await work()
            except Exception:
                self._stuck.add(internal_id)
                raise
        self._stuck.discard(internal_id)

    def _do(self, subject: str, work: Coroutine[None, None, None]) -> bool:
        """Start a chore for a container or session; False if one is in progress."""
        if self._chores.get(subject) is not None:
            work.close()
            return False
        self._chores.start(self._try(work), f"chore-{subject}", key=subject)
        return True

    async def _try(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except AgentError as error:
            log.warning("background task failed, retrying", error=str(error))

    def _set_available(self, *, available: bool, why: str = "") -> None:
        if available != self.engine_available:
            self.engine_available = available
            self._runtime.feed.host_changed()
            if available:
                log.info("the engine answers")
        if why:
            log.warning("cannot compare records with the engine", error=why)
