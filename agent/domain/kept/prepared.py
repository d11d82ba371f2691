"""A container that was prepared for any session of one shape. Pure."""

from dataclasses import dataclass

from agent.domain.containers.engine import Container
from agent.domain.sessions.session import Session
from tiltyard.contract import SessionSpec


@dataclass(frozen=True, slots=True)
class Prepared:
    """A waiting container that no session has.

    `template` describes it as a record would describe a session: its spec is the shape, its id is
    the container's own. `container` is how its start described it.
    """

    template: Session
    container: Container

    @property
    def prepared_id(self) -> str:
        """The id of the container, which names its folder and holds its ports."""
        return self.template.prepared


def template_for(prepared_id: str, shape: SessionSpec, now: float) -> Session:
    """The template of a container to prepare at the Unix time `now`, without its ports."""
    return Session(prepared_id, shape, now, prepared=prepared_id)
