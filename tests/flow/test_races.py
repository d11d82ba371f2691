"""Concurrent callers that compete for an id, or for the rest of a quota."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.plugin import Rounds
from tests.flow.whole import Whole

CALLERS = 50
ACCOUNTS = ("alice", "bob")
QUICKLY: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6}


async def stop(whole: Whole, session_id: str, account: str) -> None:
    (await whole.call("DELETE", f"/session/{session_id}", account=account)).expect(204)


@pytest.mark.timeout(900)
async def test_f16_of_all_who_start_one_id_one_has_it_in_each_account(
    tmp_path: Path, rounds: Rounds
) -> None:
    async with Whole(tmp_path, **QUICKLY) as whole:
        for account in ACCOUNTS:
            await whole.make_game(account=account)
        for number in range(rounds(2, 200)):
            session_id = f"match-{number}"
            callers = [account for _ in range(CALLERS) for account in ACCOUNTS]
            answers = await asyncio.gather(
                *(whole.start(id=session_id, account=a) for a in callers)
            )
            for account in ACCOUNTS:
                mine = zip(callers, answers, strict=True)
                statuses = Counter(answer.status for caller, answer in mine if caller == account)
                assert statuses == {201: 1, 409: CALLERS - 1}
            assert len(whole.host.live) == len(ACCOUNTS) * (number + 1)  # ended sessions are kept
            assert len(whole.engine.living) == len(ACCOUNTS)
            for account in ACCOUNTS:
                await stop(whole, session_id, account)


@pytest.mark.timeout(900)
async def test_f17_of_all_who_want_the_last_of_a_quota_one_has_it(
    tmp_path: Path, rounds: Rounds
) -> None:
    quota = 5
    async with Whole(tmp_path, **QUICKLY) as whole:
        await whole.make_game()
        path = "/operator/account/alice"
        body = {"quota": {"sessions": quota}}
        (await whole.call("PUT", path, token=whole.operator_token, json=body)).expect(204)
        held = [f"held-{number}" for number in range(quota - 1)]
        for session_id in held:
            assert (await whole.start(id=session_id)).status == 201
        for _ in range(rounds(2, 200)):
            answers = await asyncio.gather(*(whole.start() for _ in range(CALLERS)))
            assert Counter(each.status for each in answers) == {201: 1, 402: CALLERS - 1}
            assert len(whole.engine.living) == quota
            [got] = [each.json["id"] for each in answers if each.status == 201]
            await stop(whole, got, "alice")
        for session_id in held:
            await stop(whole, session_id, "alice")
