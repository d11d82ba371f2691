"""Reconciliation of prepared containers with the list of the engine.

The list is older than the comparison. If it has a container that the agent does not know, or lacks
one that the agent knows, the agent inspects that container before it removes anything.
"""

from collections.abc import Sequence

from agent.domain.containers.engine import LABEL_CONFIG, LABEL_PREPARED, Container
from agent.domain.containers.owners import assign
from agent.domain.errors import AgentError, ContainerGoneError
from agent.domain.kept.preparation import Discard
from agent.domain.kept.prepared import Prepared
from agent.domain.sessions.session import Session, checked_id
from agent.sessions.containers import as_prepared, container_spec
from agent.sessions.manager import SessionManager
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.state.encoding import decode_label
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


class Adoption:
    """Keeps the containers of an earlier run of the agent if they still wait and are current."""

    def __init__(
        self,
        runtime: Runtime,
        reservations: Reservations,
        prepared: PreparedContainers,
        sessions: SessionManager,
    ) -> None:
        self._runtime = runtime
        self._ports = reservations.ports
        self._prepared = prepared
        self._sessions = sessions
        self._folders: set[str] = set()  # Ids that had a folder in the last comparison
        self._held: set[str] = set()  # Ids whose ports are held until a comparison finds them gone

    def hold_ports(self, listed: Sequence[Container]) -> None:
        """Hold the ports of containers of an earlier run, before any container is compared."""
        _, found = assign(listed, self._sessions.each())
        for container in found:
            template = _template_of(container)
            if template is not None:  # otherwise it is discarded
                self._ports.adopt(template.internal_id, template.ports)
                self._held.add(template.internal_id)

    async def adopt(self, listed: Sequence[Container]) -> None:
        """Compare the kept containers with the listed containers that no session has.

        Afterwards, the agent begins to prepare containers. Raises the engine's errors.
        """
        prepared = self._prepared
        _, found = assign(listed, self._sessions.each())
        named = {each.labels.get(LABEL_PREPARED, "") for each in listed}
        seen = self._folders | self._held
        left = [each for each in seen - named if not self._is_known(each)]
        by_container = {each.container: each for each in found}
        waiting = list(prepared.stock)
        self._folders = set(await self._runtime.records.prepared_ids())
        for each in waiting:
            if each.prepared_id not in self._folders:
                self._discard(each, Discard.UNUSABLE)
            elif not _is_same_run(each, by_container.get(each.container.container)):
                await self._check(each)
        for container in found:
            if self._is_known(container.labels[LABEL_PREPARED]):
                continue
            try:
                await self._adopt(container)
            except AgentError:
                raise
            except Exception:
                log.exception("cannot adopt: internal error", container=container.name)
        await self._discard_outdated()
        for prepared_id in left:
            await self._runtime.records.drop_prepared(prepared_id)
            self._ports.release(prepared_id)
            self._held.discard(prepared_id)
        prepared.resume()

    async def _check(self, prepared: Prepared) -> None:
        """Discard a container that does not wait any more; the list may be older than it."""
        try:
            found = await self._runtime.engine.inspect(prepared.container.container)
        except ContainerGoneError:
            found = None
        if not _is_same_run(prepared, found):
            self._discard(prepared, Discard.ENDED)

    def _discard(self, prepared: Prepared, why: Discard) -> None:
        """Discard a container, unless a start has taken it meanwhile."""
        if prepared in self._prepared.stock:
            self._prepared.discard(prepared, why)

    async def _adopt(self, listed: Container) -> None:
        """Keep a container that an earlier run of the agent has left, or remove it."""
        try:
            found = await self._runtime.engine.inspect(listed.container)
        except ContainerGoneError:
            return
        prepared_id = found.labels[LABEL_PREPARED]
        template = _template_of(found)
        if template is None:
            log.warning("a label is invalid", container=found.name)
            self._prepared.remove(found.container, found.container, Discard.OUTDATED)
        elif not found.waits:
            if found.executes:
                log.warning("removing a container whose session was lost", container=found.name)
            self._prepared.remove(prepared_id, found.container, Discard.ENDED)
        elif prepared_id not in self._folders:  # its mount is of a folder that was removed
            self._prepared.remove(prepared_id, found.container, Discard.UNUSABLE)
        elif not await self._is_current(template, found):
            self._prepared.remove(prepared_id, found.container, Discard.OUTDATED)
        else:
            self._prepared.keep(await as_prepared(self._runtime, template, found))

    async def _discard_outdated(self) -> None:
        """Discard containers that would be created differently now; those of a shape are alike."""
        for own in self._prepared.stock.by_shape.values():
            if not await self._is_current(own[0].template, own[0].container):
                for prepared in own:
                    self._discard(prepared, Discard.OUTDATED)

    async def _is_current(self, template: Session, container: Container) -> bool:
        """Return whether a container is as it would be created now."""
        if template.spec.shape != template.spec:
            return False
        digest = await self._runtime.engine.config_digest(container_spec(self._runtime, template))
        return container.labels.get(LABEL_CONFIG) == digest

    def _is_known(self, prepared_id: str) -> bool:
        """Return whether the agent has a container now, or is about to remove it.

        A session can get only a container that the agent has.
        """
        return self._prepared.is_known(prepared_id) or any(
            session.prepared == prepared_id for session in self._sessions.each()
        )


def _template_of(found: Container) -> Session | None:
    """The template in a container's label; None if it is not valid."""
    try:
        template = decode_label(found.labels)
        is_own = checked_id(found.labels[LABEL_PREPARED]) == template.internal_id
    except (AgentError, ValueError):
        return None
    return template if is_own and template.is_template else None


def _is_same_run(prepared: Prepared, found: Container | None) -> bool:
    """Return whether a container still waits in the run in which it was prepared."""
    return found is not None and found.waits and found.process == prepared.container.process
