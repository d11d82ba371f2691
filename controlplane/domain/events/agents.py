"""Events of agents, which are the hosts' names, and of the authority of their certificates."""

from collections.abc import Sequence

from controlplane.domain.events.event import OperatorEvent
from tiltyard.records import record


@record(frozen=True, slots=True, kw_only=True)
class EnrolmentTokenCreated(OperatorEvent):
    """A token for the enrolment of one host was created; `agent` is null for a new one."""

    kind = "agent.token_created"
    object_type = "the enrolment token's id"

    region: str
    node_pool: str
    agent: str | None


@record(frozen=True, slots=True)
class AgentEvent(OperatorEvent):
    """An event of an agent."""

    object_type = "the agent"


@record(frozen=True, slots=True, kw_only=True)
class AgentEnrolled(AgentEvent):
    """A host was enrolled. The actor is the enrolment token."""

    kind = "agent.enrolled"

    region: str
    node_pool: str
    serial: str


@record(frozen=True, slots=True, kw_only=True)
class AgentRenewed(AgentEvent):
    """A host got another certificate. `expires` is in milliseconds since the epoch."""

    kind = "agent.renewed"

    serial: str
    expires: int | None
    authority: str | None


@record(frozen=True, slots=True, kw_only=True)
class AgentRevoked(AgentEvent):
    """The certificate of a host was revoked; its sessions are lost."""

    kind = "agent.revoked"


@record(frozen=True, slots=True, kw_only=True)
class AgentRemoved(AgentEvent):
    """A host was removed."""

    kind = "agent.removed"


@record(frozen=True, slots=True, kw_only=True)
class AgentDraining(AgentEvent):
    """A drain of a host was ordered; the actor is the agent if it was ordered on the host.

    `deadline` is in milliseconds since the epoch, or null.
    """

    kind = "agent.draining"

    deadline: int | None


@record(frozen=True, slots=True, kw_only=True)
class AgentUndrained(AgentEvent):
    """The end of a drain was ordered."""

    kind = "agent.undrained"


@record(frozen=True, slots=True, kw_only=True)
class AgentEmpty(AgentEvent):
    """A draining host has no live sessions any more."""

    kind = "agent.empty"


@record(frozen=True, slots=True, kw_only=True)
class AgentDiskFull(AgentEvent):
    """A disk of a host lacks space: no session starts there until it has some again."""

    kind = "agent.disk_full"


@record(frozen=True, slots=True, kw_only=True)
class AgentDiskFree(AgentEvent):
    """The disks of a host have space again."""

    kind = "agent.disk_free"


@record(frozen=True, slots=True, kw_only=True)
class AgentAvoided(AgentEvent):
    """Starts of several accounts have failed on a host, so that all starts avoid it.

    `until` is in milliseconds since the epoch; a successful start ends the avoidance earlier.
    `reason` and `error` are those of the newest failure.
    """

    kind = "agent.avoided"

    until: int
    reason: str
    error: str


@record(frozen=True, slots=True, kw_only=True)
class AgentUnresponsive(AgentEvent):
    """A host has not reported for a minute. Its sessions go on, and are not given up yet."""

    kind = "agent.unresponsive"


@record(frozen=True, slots=True, kw_only=True)
class AgentBack(AgentEvent):
    """An unresponsive host reports again; `wasLost` if its sessions had been given up."""

    kind = "agent.back"

    was_lost: bool


@record(frozen=True, slots=True, kw_only=True)
class AgentLost(AgentEvent):
    """The sessions of an unresponsive host were given up."""

    kind = "agent.lost"


@record(frozen=True, slots=True)
class AuthorityEvent(OperatorEvent):
    """An event of the authority of the agents' certificates."""

    object_type = "the new authority's fingerprint"


@record(frozen=True, slots=True, kw_only=True)
class AuthorityRotated(AuthorityEvent):
    """An authority replaces the former one, which may be compromised."""

    kind = "authority.rotated"

    compromised: bool


@record(frozen=True, slots=True, kw_only=True)
class AuthorityFinished(AuthorityEvent):
    """The former authority is no longer trusted; the agents in `left` must enrol again."""

    kind = "authority.finished"

    left: Sequence[str]
