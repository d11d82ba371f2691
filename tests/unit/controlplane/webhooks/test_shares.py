"""Attempts are shared fairly between accounts."""

import pytest

from controlplane.webhooks.attempts import AT_ONCE
from controlplane.webhooks.endpoint import PARALLEL
from tests.support.fake_clock import until_idle
from tests.support.hold import Hold
from tests.unit.controlplane.webhooks.delivering import LETTERS, Delivering

URL = "https://hooks.example/"
OTHER = "https://other.example/"
MOST = 20  # Webhooks of an account


async def test_endpoints_of_an_account_that_hang_leave_attempts_to_others(
    delivering: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.webhooks.attempts.AT_ONCE", 8)
    gate = delivering.sender.gates[URL] = Hold()
    for _ in range(MOST):
        await delivering.create(URL)
    await delivering.create(OTHER, account="bob")
    await delivering.cause("a")
    assert delivering.sender.under_way == 4
    await delivering.cause(*LETTERS, account="bob")
    assert delivering.sender.objects(OTHER) == list(LETTERS)
    gate.set()
    await until_idle()
    assert delivering.sender.objects(URL) == ["a"] * MOST


def test_account_alone_never_waits_for_itself() -> None:
    assert MOST * PARALLEL <= AT_ONCE // 2
