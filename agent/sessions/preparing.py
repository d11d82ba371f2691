"""Preparing and removing containers that no session has."""

import asyncio
import uuid
from collections.abc import Callable, Iterable

from agent.domain.containers.engine import prepared_name
from agent.domain.errors import AgentError, EngineTimeoutError, EngineUnavailableError
from agent.domain.kept.preparation import Discard
from agent.domain.kept.prepared import Prepared, template_for
from agent.domain.kept.stock import Stock
from agent.domain.sessions.session import Session
from agent.sessions import containers
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.contract import SessionSpec, shape_key
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

HAS_ENDED = "a waiting container has ended"
WAIT_SECONDS = 10.0  # Longest wait for work in progress


class PreparationTasks:
    """The tasks that prepare and remove the containers of a stock.

    `note_result` is called with a shape's key and the cause when one of its containers has failed,
    or an empty cause when one was prepared; its third argument is True if the engine did not
    answer. `changed` is called after each change.
    """

    def __init__(
        self,
        runtime: Runtime,
        reservations: Reservations,
        stock: Stock,
        *,
        note_result: Callable[[str, str, bool], None],
        changed: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._stock = stock
        self._note_result = note_result
        self._changed = changed
        self._preparations = TaskOwner[None]()
        self._removals = TaskOwner[None]()
        self.removing: set[str] = set()
        """Ids of the containers that are being removed."""

    @property
    def preparing(self) -> int:
        """The number of containers that are being prepared."""
        return len(self._preparations)

    def prepare(self, shape: SessionSpec) -> None:
        """Begin to prepare a container, with a start slot that the caller has taken.

        Raises NoFreePortError: then nothing has begun.
        """
        prepared_id = str(uuid.uuid4())
        template = template_for(prepared_id, shape, self._runtime.clock.time())
        template = self._reservations.swap_ports(template)
        self._stock.begin(prepared_id, shape_key(shape))
        self._preparations.start(self._prepare(template), f"prepare-{prepared_id}")

    def discard(self, prepared: Prepared, why: Discard) -> asyncio.Task[None]:
        """Remove a container that has waited; if it has failed, its shape has, too."""
        if why in {Discard.ENDED, Discard.UNUSABLE}:
            self._note_result(shape_key(prepared.template.spec), HAS_ENDED, False)
        return self.remove(prepared.prepared_id, prepared.container.container, why)

    def remove(self, prepared_id: str, container: str, why: Discard) -> asyncio.Task[None]:
        """Remove a container, named by its id or name, with its folders and ports.

        It is tried again until it succeeds.
        """
        self._stock.drop(prepared_id)
        removing = self._removals.get(prepared_id)
        if removing is not None:
            return removing
        self._runtime.metrics.prepared_discarded.labels(why.value).inc()
        log.info("prepared container discarded", prepared=prepared_id, reason=why.value)
        self.removing.add(prepared_id)
        removal = self._remove(prepared_id, container)
        return self._removals.start(removal, f"discard-{prepared_id}", key=prepared_id)

    async def wait_prepared(self) -> None:
        """Wait for the preparations in progress, at most WAIT_SECONDS."""
        await _wait(self._preparations)

    async def wait_removed(self) -> None:
        """Wait for the removals in progress, at most WAIT_SECONDS."""
        await _wait(self._removals)

    async def close(self) -> None:
        """Cancel work in progress; the next run of the agent finds what it leaves."""
        await asyncio.gather(self._preparations.close(), self._removals.close())

    async def _prepare(self, template: Session) -> None:
        prepared_id = template.internal_id
        cause = ""
        is_unresponsive = False
        try:
            prepared = await self._prepared(template)
            cause = "" if prepared.container.waits else "it ended at once"
        except AgentError as error:
            cause = str(error)
            is_unresponsive = isinstance(error, EngineUnavailableError | EngineTimeoutError)
        except Exception:
            log.exception("cannot prepare a container: internal error", prepared=prepared_id)
            cause = str(AgentError())
        finally:
            self._reservations.start_slots.release(template.spec.identity.account)
        self._note_result(shape_key(template.spec), cause, is_unresponsive)
        if cause:
            log.warning("cannot prepare a container", image=template.spec.image, error=cause)
            self.remove(prepared_id, prepared_name(prepared_id), Discard.FAILED)
        else:
            self._stock.add(prepared)
            log.info("container prepared", prepared=prepared_id, image=template.spec.image)
        self._changed()

    async def _prepared(self, template: Session) -> Prepared:
        runtime = self._runtime
        await runtime.failpoint("prepare.reserved")
        prepared = await containers.prepare(runtime, self._reservations, template)
        await runtime.failpoint("prepare.waiting")
        return prepared

    async def _remove(self, prepared_id: str, container: str) -> None:
        engine = self._runtime.engine
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                await engine.end_forgotten(container)
                await self._runtime.end_run(prepared_id)
                await engine.remove(container)
                await self._runtime.records.drop_prepared(prepared_id)
            except AgentError as error:
                log.warning("not removed yet", prepared=prepared_id, error=str(error))
            except Exception:
                log.exception("cannot remove: internal error", prepared=prepared_id)
            else:
                break
            await back_off.wait()
        self._reservations.ports.release(prepared_id)
        self.removing.discard(prepared_id)
        self._changed()


async def _wait(tasks: Iterable[asyncio.Task[None]]) -> None:
    waiting = tuple(tasks)
    if waiting:
        await asyncio.wait(waiting, timeout=WAIT_SECONDS)
