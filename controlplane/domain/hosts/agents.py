"""Agents, as the control plane stores them."""

from dataclasses import dataclass

from controlplane.domain.hosts.conditions import HostConditions
from controlplane.domain.hosts.contract import Drain
from controlplane.domain.hosts.written import Written


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: its address and place, and the state of its host when this was read.

    The certificate of an enrolled one names `id` and was signed by `authority`, a fingerprint;
    `trusts_former`: the host trusts another authority, too. `last_report` is exact to a
    minute. `downtime`: its seconds since. `lost`: when its sessions were given up.
    """

    name: str
    address: str
    region: str
    node_pool: str
    id: str | None = None
    certificate_expire: float | None = None
    drain_revision: int = 0
    draining: int = 0
    drain_deadline: float | None = None
    last_report: float | None = None
    downtime: float = 0.0
    lost: float | None = None
    authority: str | None = None
    trusts_former: int = 0
    revoked: float | None = None
    written_incarnation: str = ""
    written_sequence: int = 0
    disk_full: int = 0
    empty: int = 0
    sessions_draining: int = 0

    @property
    def written(self) -> Written:
        """The reports that are in the rows of its sessions."""
        return Written(self.written_incarnation, self.written_sequence)

    @property
    def conditions(self) -> HostConditions:
        """What the log of events has of its host."""
        return HostConditions(bool(self.disk_full), bool(self.empty))

    @property
    def drain(self) -> Drain:
        """The newest drain order."""
        return Drain(self.drain_revision, bool(self.draining), self.drain_deadline)
