"""What a host has had access to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExposedApplication:
    """An application whose sessions ran on a host, which got the parameters of their starts.

    `running`: sessions that are live, or were given up when the host was lost or revoked.
    """

    account: str
    application: str
    sessions: int
    running: int
    first: float | None
    last: float | None


@dataclass(frozen=True, slots=True)
class ExposedPool:
    """A warm pool whose orders the host may have had, with the environment of its standbys."""

    account: str
    application: str
    location: str


@dataclass(frozen=True, slots=True)
class ExposedLogin:
    """A registry whose login the host may have had to pull images."""

    name: str
    address: str
    username: str


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a host has had access to."""

    agent: str
    applications: list[ExposedApplication]
    warm_pools: list[ExposedPool]
    registry_logins: list[ExposedLogin]

    @property
    def sessions(self) -> int:
        """The number of sessions that were placed on the host."""
        return sum(each.sessions for each in self.applications)

    @property
    def running(self) -> int:
        """The number of sessions that may still run there."""
        return sum(each.running for each in self.applications)

    @property
    def accounts(self) -> list[str]:
        """The accounts that are concerned, sorted."""
        started = {each.account for each in self.applications}
        return sorted(started | {pool.account for pool in self.warm_pools})
