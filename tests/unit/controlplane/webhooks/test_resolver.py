"""Lookups of names are shared fairly between accounts."""

import asyncio
import threading

import pytest

from controlplane.webhooks import resolver
from controlplane.webhooks.resolver import THREADS, LookUps
from tests.support.controlplane.system import eventually


async def test_names_of_an_account_that_cannot_be_looked_up_leave_threads_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = threading.Event()
    begun: list[str] = []

    def look_up(host: str) -> list[tuple[int, int, str]]:
        begun.append(host)
        if host.startswith("slow"):
            assert slow.wait(60)
        return [(2, 6, "192.0.2.1")]

    monkeypatch.setattr(resolver, "look_up", look_up)
    look_ups = LookUps()
    waiting = [
        asyncio.create_task(look_ups.addresses("alice", f"slow{number}"))
        for number in range(2 * THREADS)
    ]
    try:
        await eventually(lambda: len(begun) == THREADS // 2)
        assert await look_ups.addresses("bob", "quick") == [(2, 6, "192.0.2.1")]
        # An attempt that ends leaves its lookup behind, which still counts.
        for task in waiting[:THREADS]:
            task.cancel()
        await asyncio.wait(waiting[:THREADS])
        assert len(begun) == THREADS // 2 + 1
    finally:
        slow.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        look_ups.close()
    assert len(begun) > THREADS // 2 + 1
