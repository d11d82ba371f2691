"""A control plane that is killed again and again under load, checked by all that callers saw."""

import asyncio
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controlplane.domain.steps import START_STEPS, STOP_STEPS
from tests.faults import history as calls
from tests.faults.invariants import beyond_quota
from tests.faults.invariants import doubled as doubled_on_hosts
from tests.faults.plugin import Figure, Rounds
from tests.flow.busy_callers import Caller, History, known_to
from tests.flow.outlived import Outlived

ACCOUNTS = ("default", "other", "third")
QUOTA = 5
MOST = dict.fromkeys(ACCOUNTS, QUOTA)
CALLERS = 3
"""Of each account; together they want more than its quota."""
HOSTS = 3
SESSIONS_EACH = 6
"""On each host: no one host has room for all."""
LONGEST_LIFE = 1.5
"""Seconds after which a control plane is killed that did not reach its fail point."""
STEPS = (*START_STEPS, *STOP_STEPS)
SETTINGS: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6}


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_f36_a_control_plane_killed_again_and_again_forgets_and_doubles_nothing(
    tmp_path: Path, rounds: Rounds, chance: Random, figure: Figure
) -> None:
    kills, path = rounds(5, 100), tmp_path / "history.jsonl"
    hosts = {"hosts": HOSTS, "sessions_each": SESSIONS_EACH}
    with closing(History(path)) as history:
        async with Outlived(tmp_path, **hosts, **SETTINGS) as outlived:
            await _prepare(outlived)
            await _killed_under_load(outlived, history, kills, chance)
            end = await _reconciled(outlived)
            found = _mistakes(outlived, history.entries, end)
            figure("SIGKILLs", kills)
            for op, outcomes in sorted(calls.tally(history.entries).items()):
                figure(op, ", ".join(f"{outcomes[one]} {one}" for one in ("ok", "fail", "info")))
            for what, wrong in found.items():
                figure(what, len(wrong))
            assert not any(found.values()), found
            await _everything_is_given_back(outlived, end)


async def _prepare(outlived: Outlived) -> None:
    for account in ACCOUNTS:
        await outlived.make_game(account)
        path, body = f"/operator/account/{account}", {"quota": {"sessions": QUOTA}}
        assert (await outlived.call("PUT", path, json=body))[0] == 204
    outlived.witness.most = MOST


def _mistakes(
    outlived: Outlived, history: Sequence[calls.Entry], end: calls.End
) -> dict[str, list[str]]:
    """What is wrong with what callers saw, and with what the hosts ran."""
    witness, sessions = outlived.witness, outlived.sessions
    return {
        "two 201 for one id": [
            *calls.doubled(history),
            *witness.doubled,
            *doubled_on_hosts(sessions),
        ],
        "sessions lost": [*calls.lost(history, end), *calls.unseen(history, end)],
        "quota exceeded": [*witness.beyond_quota, *beyond_quota(sessions, MOST)],
        "refused wrongly": calls.refused_wrongly(history, MOST),
    }


async def _killed_under_load(
    outlived: Outlived, history: History, kills: int, chance: Random
) -> None:
    """Kill the control plane at random, by time or at a random step, and start another."""
    serving, enough = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            for account in ACCOUNTS:
                caller = Caller(number, account, outlived, history, Random(chance.random()))
                group.create_task(caller.run(serving, enough), name=f"{account} {number}")
        for _ in range(kills):
            step = chance.choice(("", "", *STEPS))
            if await outlived.serve(f"{step}:kill" if step else ""):
                serving.set()
                await _ends_itself(outlived, chance.uniform(0, LONGEST_LIFE))
                serving.clear()
                outlived.process.kill()
        await outlived.serve()
        serving.set()
        enough.set()


async def _ends_itself(outlived: Outlived, within: float) -> None:
    """Wait until it has, at most `within` seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await outlived.killed()


async def _reconciled(outlived: Outlived) -> calls.End:
    """Wait until callers see what hosts run; return what that is.

    It comes about by itself; if it does not, what is returned shows it.
    """
    known: dict[calls.Key, str] = {}

    async def agree() -> bool:
        known.clear()
        for account in ACCOUNTS:
            known.update(await known_to(outlived, account))
        live = {key for key, status in known.items() if status not in calls.ENDED}
        statuses = {known[key] for key in live}
        return statuses <= {"running"} and sorted(live) == sorted(outlived.witness.running)

    with suppress(AssertionError):
        await outlived.holds(agree)
    return calls.End(known, outlived.witness.running)


async def _everything_is_given_back(outlived: Outlived, end: calls.End) -> None:
    """No quota and no room is held by what is not there: all of it can be had, and given back."""
    for account, session_id in end.running:
        status, answer = await outlived.call("DELETE", f"/session/{session_id}", account=account)
        if status == 503:  # the stop is remembered, whatever kept it
            status, answer = await outlived.call(
                "DELETE", f"/session/{session_id}", account=account
            )
        assert status in {204, 409}, answer
    for account in ACCOUNTS:
        for number in range(QUOTA):
            body = {"location": "local", "image": "game", "id": f"last-{number}"}
            status, answer = await outlived.call("POST", "/session", account=account, json=body)
            assert status == 201, answer
    assert len(outlived.witness.running) == QUOTA * len(ACCOUNTS)
