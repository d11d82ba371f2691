"""The prepared containers of a host, which wait for starts.

`domain/kept/preparation.py` decides what to prepare and to discard; this module executes the plan,
hands containers to starts, and compares what it keeps with what the engine lists.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from agent.changes.looking import look_at_changes
from agent.domain.errors import AgentError, NoFreePortError
from agent.domain.kept.demands import Demands
from agent.domain.kept.preparation import MOST_CONTAINERS, Discard, plan
from agent.domain.kept.prepared import Prepared
from agent.domain.kept.retry_delays import RetryDelays
from agent.domain.kept.stock import Stock
from agent.sessions.containers import ANSWER_SECONDS
from agent.sessions.life import Life
from agent.sessions.preparing import PreparationTasks
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.contract import PreparedShape, Protocol, SessionSpec, shape_key
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

PORTS_PAUSE_SECONDS = 60.0  # Nothing is prepared for so long after a session lacked ports
WARNINGS_KEPT = 16  # Most warnings; each names an image


class PreparedContainers:
    """Keeps containers by shape, and gives each to one start."""

    def __init__(
        self,
        runtime: Runtime,
        reservations: Reservations,
        *,
        has_image: Callable[[str], bool],
    ) -> None:
        """`has_image` returns whether an image is on the host."""
        self._runtime = runtime
        self._reservations = reservations
        self._has_image = has_image
        self._demands = Demands()
        self.stock = Stock()
        """The containers that wait. Readers must not change them."""
        self._retry_delays = RetryDelays()
        self._preparing = PreparationTasks(
            runtime, reservations, self.stock, note_result=self._note_result, changed=self._changed
        )
        self._starts = TaskOwner[None]()
        self._paused_until = 0.0
        self._engine_answers = False  # From a pass on, until an engine call fails

    # -- for starts ----------------------------------------------------------------------------

    def take(self, spec: SessionSpec) -> Prepared | None:
        """Take a container for a session, if one of its shape waits."""
        return self.stock.take(spec)

    def put_back(self, prepared: Prepared) -> None:
        """Put back a container that was taken for a start that was refused."""
        self.stock.put_back(prepared)

    def follow(self, life: Life, prepared: Prepared | None) -> None:
        """Note the demand of a start that was admitted, and replace what it took once it is over.

        A start that found none counts once it has succeeded.
        """
        shape = life.session.spec.shape if prepared is None else prepared.template.spec
        if shape is None or not self._runtime.settings.prepared:
            return
        if prepared is None:
            self._runtime.metrics.prepared_missed.inc()
        else:
            self._runtime.metrics.prepared_taken.inc()
            key = self.stock.key(prepared)
            self._demands.note_taken(key, self._now(), waiting=self.stock.waiting(key))
        following = self._follow(life, shape, prepared)
        self._starts.start(following, f"follow-{life.session.internal_id}")

    async def _follow(self, life: Life, shape: SessionSpec, prepared: Prepared | None) -> None:
        try:
            await life.wait_started()
            await self._runtime.clock.sleep(ANSWER_SECONDS)
            if prepared is None:
                self._note_missed(shape)
        except AgentError as error:
            log.debug("start failed", session=life.session.internal_id, error=str(error))
        finally:
            if prepared is not None:
                self.stock.drop(prepared.prepared_id)
        self._changed()

    def _note_missed(self, shape: SessionSpec) -> None:
        """Note a start that found none, unless the cause is not that too few are wanted."""
        key = shape_key(shape)
        most = 0 if key in self._retry_delays.held_back(self._now()) else self._limit
        self._demands.note_missed(key, shape, self._now(), most=most)

    def discard(self, prepared: Prepared, why: Discard) -> asyncio.Task[None]:
        """Remove a container, with its folders and ports, until that succeeds.

        If it has failed, its shape is prepared again after a back-off.
        """
        return self._preparing.discard(prepared, why)

    async def make_room(self, spec: SessionSpec) -> bool:
        """Remove containers whose ports a session of this spec lacks; True if it may try again.

        Nothing is prepared for a while, since more sessions may need ports.
        """
        waiting = [each.prepared_id for each in self.stock]
        holders = self._reservations.ports.in_the_way(spec, [*waiting, *self.stock.ids])
        if not holders and not self._preparing.removing:
            return False
        self._paused_until = self._now() + PORTS_PAUSE_SECONDS
        if not holders <= set(waiting):
            await self._preparing.wait_prepared()
        for prepared in self.stock:
            if prepared.prepared_id in holders:
                self.discard(prepared, Discard.PORTS)
        await self._preparing.wait_removed()
        return True

    # -- for others ----------------------------------------------------------------------------

    def set_shapes(self, shapes: Sequence[SessionSpec]) -> None:
        """Set the shapes of which one container is kept without a start, all of them."""
        self._demands.order(shapes, self._now())
        self._changed()

    async def discard_image(self, image: str) -> None:
        """Remove the containers of an image; none is prepared until a start or an order."""
        self._demands.forget_image(image)
        await self._preparing.wait_prepared()
        for prepared in self.stock:
            if prepared.template.spec.image == image:
                self.discard(prepared, Discard.IMAGE)
        await self._preparing.wait_removed()

    @property
    def shapes(self) -> Sequence[PreparedShape]:
        """The shapes of waiting containers, and those whose preparation fails."""
        causes = self._causes()
        waiting = self.stock.by_shape
        images = {key: own[0].template.spec.image for key, own in waiting.items()}
        images |= {key: self._demands[key].shape.image for key in causes}
        return [
            PreparedShape(key, image, len(waiting.get(key, ())), causes.get(key, ""))
            for key, image in images.items()
        ]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Images whose containers cannot be prepared, and why."""
        found = {
            f"prepared containers of {self._demands[key].shape.image}: {cause}"
            for key, cause in self._causes().items()
        }
        return tuple(sorted(found)[:WARNINGS_KEPT])

    def held_ports(self, protocol: Protocol) -> int:
        """The number of host ports of containers that no session has: sessions get them first."""
        pool = self._reservations.ports
        ids = self.stock.ids | self._preparing.removing
        ports = [port for each in ids for port in pool.held(each)]
        return sum(len(port.taken) for port in ports if port.protocol is protocol)

    # -- for the reconciliation ----------------------------------------------------------------

    def is_known(self, prepared_id: str) -> bool:
        """Return whether a container is kept, or about to be removed."""
        return prepared_id in self.stock.ids or prepared_id in self._preparing.removing

    def keep(self, prepared: Prepared) -> None:
        """Keep a container that an earlier run of the agent has prepared."""
        template = prepared.template
        self._reservations.ports.adopt(prepared.prepared_id, template.ports)
        self.stock.add(prepared)
        self._demands.note_found(shape_key(template.spec), template.spec, self._now())
        self._changed()

    def remove(self, prepared_id: str, container: str, why: Discard) -> None:
        """Remove a container that is not kept, with its folders and ports."""
        self._preparing.remove(prepared_id, container, why)

    def resume(self) -> None:
        """Begin to prepare containers: the engine answers, and what it lists is known."""
        if not self._engine_answers:
            self._engine_answers = True
            self._changed()

    # -- for the daemon ------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep containers as planned, until cancelled."""
        await look_at_changes(
            self.look,
            self._runtime.feed,
            self._runtime.clock,
            next_due=lambda: self._retry_delays.next_end(self._now()),
            name="prepared-containers",
        )

    def look(self) -> None:
        """Carry out the plan as far as is possible now; the next look sees the results."""
        if not self._engine_answers:
            return
        now = self._now()
        self._demands.review(now, {key: len(own) for key, own in self.stock.by_shape.items()})
        self._retry_delays.keep(self._demands.keys(), now)
        found = plan(
            self._demands,
            self.stock.kept,
            limit=self._limit,
            now=now,
            held_back=self._held_back(now),
        )
        why = Discard.DRAIN if self._reservations.drain.now.draining else Discard.UNNEEDED
        unneeded = set(found.discard)
        for prepared in self.stock:
            if prepared.prepared_id in unneeded:
                self.discard(prepared, why)
        for key in found.begin:
            self._begin(key)

    async def close(self) -> None:
        """Cancel work in progress; containers keep waiting."""
        await asyncio.gather(self._starts.close(), self._preparing.close())

    def _begin(self, key: str) -> None:
        """Prepare a container, unless too many are in progress or starts may need the slot."""
        shape = self._demands[key].shape
        account = shape.identity.account
        slots = self._reservations.start_slots
        preparing = self._preparing
        existing = len(self.stock) + preparing.preparing + len(preparing.removing)
        is_idle = preparing.preparing < max(1, slots.slots // 4) and not slots.waiting
        may_begin = existing < self._limit and is_idle and slots.has_spare(account)
        if not (may_begin and slots.take(account)):
            return
        try:
            preparing.prepare(shape)
        except NoFreePortError as error:
            slots.release(account)
            log.debug("not prepared", image=shape.image, error=str(error))

    def _held_back(self, now: float) -> Collection[str]:
        """The shapes of which none can be prepared now."""
        held = self._reservations
        if held.disks.short is not None or now < self._paused_until:
            return self._demands.keys()
        failed = self._retry_delays.held_back(now)
        return {
            key
            for key, demand in self._demands.items()
            if key in failed or not self._is_allowed(demand.shape)
        }

    def _is_allowed(self, shape: SessionSpec) -> bool:
        """Return whether a session of a shape could start on this host."""
        if not self._has_image(shape.image):
            return False
        try:
            self._reservations.policy.check_spec(shape)
            self._reservations.tls_ports.check(shape)
        except AgentError:
            return False
        return True

    def _note_result(self, key: str, cause: str, is_unresponsive: bool) -> None:
        """Note a failure of a shape, or without a cause a success."""
        if cause:
            self._retry_delays.note(key, cause, self._now())
        else:
            self._retry_delays.note_success(key)
        if is_unresponsive:
            self._engine_answers = False

    @property
    def _limit(self) -> int:
        """The number of containers that may be kept."""
        if self._reservations.drain.now.draining:
            return 0
        room = MOST_CONTAINERS - self._reservations.capacity.sessions
        return max(0, min(self._runtime.settings.prepared, room))

    def _causes(self) -> dict[str, str]:
        """Return the cause of the last failure of each shape that has not succeeded since."""
        causes = self._retry_delays.causes(self._now())
        return {key: cause for key, cause in causes.items() if key in self._demands}

    def _changed(self) -> None:
        self._runtime.feed.host_changed(can_wait=True)

    def _now(self) -> float:
        return self._runtime.clock.monotonic()
