"""The orders of hosts in a region and node pool: images and prepared containers."""

from collections.abc import Collection

from controlplane.domain.hosts.host_orders import HostOrders
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.applications.applications import newest_images
from controlplane.storage.tables.applications.tags import images_of
from tiltyard.contract import Identity, SessionSpec, shape_key

MAX_SHAPES = 200  # Of one host, which keeps some dozens of prepared containers


def orders_of(db: Database, region: str, node_pool: str, present: Collection[str]) -> HostOrders:
    """Read the orders of a host of a region and node pool with these images."""
    images = images_of(db, region, node_pool, present)
    return HostOrders(images, _shapes_of(db, region, node_pool))


def _shapes_of(db: Database, region: str, node_pool: str) -> tuple[SessionSpec, ...]:
    """Return the shape of each application's default tag, each shape once."""
    found: dict[str, SessionSpec] = {}
    for application, image in newest_images(db, region, node_pool, MAX_SHAPES):
        identity = Identity(application.account, "", application.name, "", region)
        shape = application.spec(identity, image).shape
        if shape is not None:
            found.setdefault(shape_key(shape), shape)
    return tuple(found.values())
