"""The reservation of one attempt on a host, in memory, and the outcome of its call.

A hold is released when no row names its attempt any more. If it were released earlier, a report of
its host could end a session that continues on another host.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.attempts import Attempt
from controlplane.fleet.host.host import Host
from tiltyard.records import record


@record(frozen=True, slots=True)
class Confirmed:
    """The host runs the session; its row is confirmed."""

    session: HostSession
    is_to_stop: bool  # A stop was requested meanwhile and is under way


@dataclass(frozen=True, slots=True)
class NothingStarted:
    """The host refused; the attempt left nothing."""

    error: AgentRefusedError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The host did not answer or failed midway: the session may still start."""

    error: AgentRefusedError | AgentUnavailableError


Outcome = Confirmed | NothingStarted | Unknown


@dataclass(slots=True, eq=False)
class Hold(ABC):
    """Resources of a host that an attempt reserves until the hold is released."""

    host: Host
    attempt: Attempt
    is_called: bool = field(default=False, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    """The outcome of the call; None before the call returns, and after an internal error."""

    @property
    def is_unanswered(self) -> bool:
        """True if the host was called and has not confirmed that nothing started."""
        return self.is_called and not isinstance(self.outcome, NothingStarted)

    @property
    def failed(self) -> Attempt:
        """The attempt, with what is known of it after its call."""
        return self.attempt._replace(is_unanswered=self.is_unanswered)

    @abstractmethod
    def release(self) -> None:
        """Release the reservation, unless its session runs."""


def attempt_on(host: Host, internal_id: str) -> Attempt:
    """Name an attempt on a host."""
    address = host.state.report.public_address if host.state.report is not None else ""
    return Attempt(internal_id, host.name, address)
