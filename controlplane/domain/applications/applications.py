"""Applications: image repositories with the settings of their sessions."""

from dataclasses import dataclass

from controlplane.domain.applications.privileges import Privileges
from tiltyard.contract import (
    Capability,
    Identity,
    NetworkMode,
    PortRequest,
    Resources,
    SessionSpec,
)


@dataclass(frozen=True, slots=True)
class Application:
    """An image repository and the settings of its sessions.

    `disk_bytes` is a session's disk limit and `pids` its limit of processes, 0 for its host's;
    `shm_bytes` is the size of its /dev/shm, 0 for one by its memory limit. `stop_signal` is
    the name of the signal of a stop, empty for its image's; `stop_grace` are seconds, 0 for its
    host's. `capabilities` are sorted, each once. `image_init`: its images have an init of their
    own. `contiguous`: the host ports of a session are neighbours. `player_events`: players who
    join or leave its sessions are events.
    """

    account: str
    name: str
    registry: str
    repository: str
    tag_keep: int
    network_mode: NetworkMode
    node_pool: str
    regions: tuple[str, ...]
    limits: Resources
    reservation: Resources
    ports: tuple[PortRequest, ...]
    disk_bytes: int = 0
    pids: int = 0
    shm_bytes: int = 0
    stop_signal: str = ""
    stop_grace: int = 0
    capabilities: tuple[Capability, ...] = ()
    image_init: bool = False
    contiguous: bool = False
    player_events: bool = False

    @property
    def privileges(self) -> Privileges:
        """What its sessions may do beyond others, if their node pool allows it."""
        return Privileges(self.network_mode is NetworkMode.HOST, frozenset(self.capabilities))

    def spec(self, identity: Identity, image: str) -> SessionSpec:
        """Return the spec of its sessions that run an image, without what each request adds."""
        return SessionSpec(
            identity=identity,
            image=image,
            network_mode=self.network_mode,
            reservation=self.reservation,
            limits=self.limits,
            ports=self.ports,
            disk_bytes=self.disk_bytes,
            pids=self.pids,
            shm_bytes=self.shm_bytes,
            stop_signal=self.stop_signal,
            stop_grace=self.stop_grace,
            capabilities=self.capabilities,
            image_init=self.image_init,
            contiguous=self.contiguous,
        )
