"""The shapes of which the hosts of a region and node pool keep a prepared container."""

from dataclasses import replace
from unittest import mock

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.applications.tags import Tag
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications.applications import create
from controlplane.storage.tables.applications.tags import enable_tag
from controlplane.storage.tables.hosts import host_orders
from controlplane.storage.tables.hosts.host_orders import orders_of
from tests.support.controlplane.samples import APPLICATION
from tiltyard.contract import Resources

NOW = 1000.0
OPERATOR = Actor("operator")
SMALL = Resources(10**9, 2**30)
WITH_GPU = Resources(10**9, 2**30, 1)


async def add(
    store: Store, account: str, name: str, *, repository: str = "", resources: Resources = SMALL
) -> None:
    """Add an application."""
    application = replace(
        APPLICATION,
        account=account,
        name=name,
        repository=repository or name,
        limits=resources,
        reservation=resources,
    )
    await store.run(create, application, actor=OPERATOR, now=NOW)


@pytest.fixture
async def store(store: Store) -> Store:
    def begin(db: Database) -> None:
        db.execute("INSERT INTO registry(name, address, aliases) VALUES ('r', 'r.example', '[]')")
        db.execute("INSERT OR IGNORE INTO region(name) VALUES ('local')")
        write_row(db, "node_pool", {"name": "default", "strategy": "packed"})
        write_row(db, "account", {"name": "bob", "created_ms": 0})

    await store.run(begin)
    return store


async def enable(store: Store, account: str, name: str, tag: str = "v1", of: str = "") -> str:
    """Enable a tag of an application; return its image."""
    digest = f"sha256:{tag}"
    image = f"r.example/{of or name}@{digest}"
    new = Tag(tag, digest, image)
    key = (account, name)
    assert await store.run(enable_tag, key, new, actor=OPERATOR, now=NOW)
    return image


async def shapes_of(store: Store) -> list[tuple[str, str]]:
    """Return account and image of each ordered shape."""
    orders = await store.look(orders_of, "local", "default", ())
    return [(shape.identity.account, shape.image) for shape in orders.shapes]


async def test_each_account_comes_once_before_any_comes_twice(store: Store) -> None:
    for name in ("a", "b", "c"):
        await add(store, "alice", name)
        await enable(store, "alice", name)
    await add(store, "bob", "z")
    await enable(store, "bob", "z")
    with mock.patch.object(host_orders, "MAX_SHAPES", 3):
        assert await shapes_of(store) == [
            ("alice", "r.example/a@sha256:v1"),
            ("bob", "r.example/z@sha256:v1"),
            ("alice", "r.example/b@sha256:v1"),
        ]


async def test_applications_of_one_shape_are_ordered_once(store: Store) -> None:
    for name in ("a", "b"):
        await add(store, "alice", name, repository="same")
        await enable(store, "alice", name, of="same")
    assert await shapes_of(store) == [("alice", "r.example/same@sha256:v1")]


async def test_accounts_do_not_share_shapes(store: Store) -> None:
    for account in ("alice", "bob"):
        await add(store, account, "a")
        await enable(store, account, "a")
    image = "r.example/a@sha256:v1"
    assert await shapes_of(store) == [("alice", image), ("bob", image)]


async def test_application_with_gpus_has_no_shape(store: Store) -> None:
    await add(store, "alice", "a", resources=WITH_GPU)
    await enable(store, "alice", "a")
    assert await shapes_of(store) == []


async def test_newest_tag_counts(store: Store) -> None:
    await add(store, "alice", "a")
    for tag in ("v1", "v2", "v1"):
        newest = await enable(store, "alice", "a", tag)
    assert await shapes_of(store) == [("alice", newest)]


async def test_application_without_a_tag_is_not_ordered(store: Store) -> None:
    await add(store, "alice", "a")
    assert await shapes_of(store) == []
