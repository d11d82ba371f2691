"""A warm pool as ordered from a host: number and spec of standbys. Pure."""

from dataclasses import dataclass, replace
from signal import SIGKILL, SIGSTOP, Signals

from agent.domain.errors import InvalidArgumentError
from agent.domain.sessions.session import Standby
from tiltyard.contract import SessionSpec

NO_SIGNALS = {SIGKILL.name, SIGSTOP.name}  # Signals that no process can handle


@dataclass(frozen=True, slots=True)
class WarmPool:
    """The order of one pool.

    `revision` grows with every change in the control plane's store; `spec_revision` is that of the
    newest change of spec or signal. A pool of size 0 has no spec.
    """

    pool: str
    revision: int
    size: int
    spec: SessionSpec | None = None
    claim_signal: str = ""
    spec_revision: int = 0

    @property
    def standby(self) -> Standby:
        """The `Standby` of its next session."""
        return Standby(self.pool, self.spec_revision, self.claim_signal)

    @property
    def account(self) -> str:
        """The account of its standbys; "" for a pool without a spec."""
        return "" if self.spec is None else self.spec.identity.account

    def spec_for(self, internal_id: str) -> SessionSpec:
        """The spec of its next standby; raises ValueError for a pool without one."""
        if self.spec is None:
            raise ValueError(f"warm pool {self.pool} has no spec")
        identity = replace(self.spec.identity, session_id=internal_id)
        return replace(self.spec, identity=identity)


def taken(order: WarmPool, before: WarmPool | None) -> WarmPool:
    """The pool after an order, given its state `before`; raises InvalidArgumentError."""
    if not order.size:
        return WarmPool(order.pool, order.revision, 0)
    spec = order.spec
    signal = order.claim_signal
    if spec is None:
        raise InvalidArgumentError("spec", "it is needed for a size that is not 0")
    if any(port.pinned for port in spec.ports):
        raise InvalidArgumentError("spec.ports", "standbys of a pool cannot share a host port")
    if signal and (signal not in Signals.__members__ or signal in NO_SIGNALS):
        raise InvalidArgumentError(
            "claim_signal", "it is not the name of a signal that can be handled"
        )
    # Id, ticket and TTL are set by the claim.
    spec = replace(spec, identity=replace(spec.identity, session_id="", ticket=""), ttl=None)
    is_same = before is not None and (before.spec, before.claim_signal) == (spec, signal)
    spec_revision = before.spec_revision if before is not None and is_same else order.revision
    return replace(order, spec=spec, spec_revision=spec_revision)
