"""Background work: opening the database, comparing hosts' images with tags."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.errors import StoreError
from controlplane.domain.tokens import ACCOUNT_SCOPES
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.tags import enable_tag
from tests.support.controlplane.system import System, eventually
from tests.support.controlplane.transactions import Go, blocked, intercept

ALICE = Caller("alice", "test", ACCOUNT_SCOPES)


async def test_a_locked_database_ends_serve_and_leaves_no_thread(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.stop_serving()
    monkeypatch.setattr("controlplane.storage.engine.store.BUSY_TIMEOUT", 0.0)
    other = sqlite3.connect(system.config.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await ControlPlane(system.config).serve(asyncio.Event())
    other.close()
    assert "store" not in {thread.name for thread in threading.enumerate()}
    await system.serve()


async def test_retries_image_comparison_after_database_error(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    image = await system.make_application()
    # A pull under way would compare again by itself.
    await eventually(system.has_its_images)
    another = image.partition("@")[0] + "@sha256:" + "a" * 64
    await system.rows(f"UPDATE tag SET image = '{another}'")
    await system.rows("ALTER TABLE tag RENAME TO hidden")
    system.control_plane.fleet.look_at_images()
    await eventually(lambda: "cannot read its desired images" in caplog.text)
    await system.rows("ALTER TABLE hidden RENAME TO tag")
    await eventually(lambda: system.agent.pulled == [image, another])


async def test_compares_images_of_hosts_periodically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.fleet.host.images.REVIEW_INTERVAL", 0.05)
    async with System(tmp_path) as system:
        image = await system.make_application()
        another = image.partition("@")[0] + "@sha256:" + "a" * 64
        await system.rows(f"UPDATE tag SET image = '{another}'")  # not notified
        await eventually(lambda: system.agent.pulled == [image, another])


async def test_hosts_pull_a_tag_whose_client_hung_up(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is cancelled while its transaction waits for the database."""
    await system.make_application(tag=None)
    digest = system.registry.push("studio/game", "v1")
    sent = asyncio.Event()

    async def while_blocked(go: Go) -> Any:
        async with blocked(system.control_plane.store.run):
            sent.set()
            return await go()

    intercept(monkeypatch, enable_tag, while_blocked)
    task = asyncio.create_task(system.control_plane.services.tags.enable(ALICE, "game", "v1"))
    await sent.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await eventually(lambda: system.has("a0", f"{system.registry.address}/studio/game@{digest}"))
