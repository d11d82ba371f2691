"""Values that tests of the control plane start from; `replace` changes them."""

from controlplane.domain.applications.applications import Application
from tiltyard.contract import NetworkMode, Resources

APPLICATION = Application(
    account="alice",
    name="game",
    registry="r",
    repository="game",
    tag_keep=5,
    network_mode=NetworkMode.BRIDGE,
    node_pool="default",
    regions=("local",),
    limits=Resources(1, 1),
    reservation=Resources(1, 1),
    ports=(),
)
