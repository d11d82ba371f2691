"""Attempts are shared fairly between accounts."""

import asyncio

import pytest

from controlplane.domain.webhooks.messages import Message
from controlplane.domain.webhooks.webhook import Webhook
from controlplane.storage.tables.webhooks.webhooks import SealedSecrets
from controlplane.webhooks.attempts import AT_ONCE, Attempts
from controlplane.webhooks.endpoint import PARALLEL
from tests.support.controlplane.system import eventually
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


async def test_accounts_take_turns_to_begin_attempts(delivering: Delivering) -> None:
    """An account with many events at endpoints that answer at once delays another by one."""
    sender = delivering.sender
    attempts = Attempts(
        sender,
        delivering.secrets,
        clock=delivering.clock,
        metrics=delivering.metrics,
        spacing=0.001,
    )
    message = Message("m", "webhook.test", b'{"type": "webhook.test", "data": {}}')

    async def attempt(account: str, url: str) -> None:
        webhook = Webhook("w", account, url, 0.0)
        await attempts.make(webhook, sealed[account], message, "test")

    sealed = {
        account: SealedSecrets((await delivering.secrets.new(account, "w"))[1], None, None)
        for account in ("alice", "bob")
    }
    many = [asyncio.create_task(attempt("alice", URL)) for _ in range(20)]
    await eventually(lambda: bool(sender.sent))
    before = len(sender.sent)
    await asyncio.gather(attempt("bob", OTHER), *many)
    begun = [sent.url for sent in sender.sent]
    assert begun.count(URL) == 20
    assert begun.index(OTHER) <= before + 2  # the next of each account, at most
