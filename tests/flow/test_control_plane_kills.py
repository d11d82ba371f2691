"""A control plane that is killed repeatedly under load, checked against all answers."""

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controlplane.domain.steps import START_STEPS, STOP_STEPS
from tests.faults.invariants import beyond_quota, doubled
from tests.faults.plugin import Figure, Rounds
from tests.flow.outlived import NO_ANSWER, Key, Outlived
from tests.support.controlplane.system import eventually

ACCOUNTS = ("default", "other", "third")
QUOTA = 5
MOST = dict.fromkeys(ACCOUNTS, QUOTA)
CALLERS = 3  # Callers per account; together they exceed its quota
HOSTS = 3
SESSIONS_EACH = 6  # Sessions per host: no single host has room for all
STARTS = 2000  # Acknowledged ones in the long form, at least
LONGEST_LIFE = 4.0
"""Seconds after which a control plane is killed if it has not reached its fail point."""
STEPS = (*START_STEPS, *STOP_STEPS)
SETTINGS: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6}
PAUSE = 0.02  # Maximum seconds between two requests of a caller
ASK_AGAIN = 0.7
SESSIONS_OF_A_CALLER = 2
ENDED = frozenset({"exited", "dead"})
NOBODY = 0  # In place of a status: the control plane was down


@dataclass
class Session:
    """A session as its only caller knows it; an unknown request may still take effect."""

    is_being_started: bool = False  # A start is under way
    start_asked: bool = False
    started: bool = False
    stop_asked: bool = False
    stopped: bool = False


class Caller:
    """A caller of an account with one or a few sessions, of those who share its quota."""

    def __init__(
        self, peers: list["Caller"], account: str, outlived: Outlived, chance: Random
    ) -> None:
        """Join `peers`, the callers of the account."""
        self._name = f"{account}-{len(peers)}"
        self._account = account
        self._peers = peers
        peers.append(self)
        self._outlived = outlived
        self._chance = chance
        self._numbers = itertools.count()
        self._mine: list[str] = []  # The sessions that may live
        self.sessions: dict[Key, Session] = {}
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, serving: asyncio.Event, enough: asyncio.Event) -> None:
        """Send requests until the end; wait while the control plane is down.

        Requests of unknown outcome are retried, but some callers give up.
        """
        while not enough.is_set():
            await serving.wait()
            await asyncio.sleep(self._chance.uniform(0, PAUSE))
            what = self._next()
            while await self._ask(*what) and self._chance.random() < ASK_AGAIN:
                await serving.wait()

    def _next(self) -> tuple[str, str]:
        """The next operation and its session."""
        if len(self._mine) < SESSIONS_OF_A_CALLER and self._chance.random() < 0.5:
            self._mine.append(f"{self._name}-{next(self._numbers)}")
            return "start", self._mine[-1]
        if not self._mine:
            return "read", f"{self._name}-0"
        return self._chance.choice(("stop", "read")), self._chance.choice(self._mine)

    async def _ask(self, operation: str, session_id: str) -> bool:
        """Send one request; return whether its outcome is unknown."""
        session = self.sessions.setdefault((self._account, session_id), Session())
        is_a_start = operation == "start"
        held = self._held_by_account()
        session.is_being_started = is_a_start
        status, body = await self._call(operation, session_id)
        session.is_being_started = False
        is_unknown = status is None or status >= 500
        if is_unknown:
            outcome = "unknown"
        elif status in {200, 201, 204}:
            outcome = "ok"
        else:
            outcome = "refused"
        self.answers[f"{operation} {outcome}"] += 1
        mistake = status in {401, 403, 500} or (status == 404 and session.started)
        if is_a_start:
            mistake |= status == 201 and session.started
            others = (held | self._held_by_account()) - {(self._account, session_id)}
            mistake |= status == 402 and len(others) < QUOTA
            session.started |= status == 201
            session.start_asked |= is_unknown or status == 201
            # What was asked for may be there later, also after a refusal: only a stop ends it.
            is_over = status != 409 and not session.start_asked
        elif operation == "stop":
            session.stopped |= status == 204
            session.stop_asked |= is_unknown or status == 204
            is_over = status != NOBODY
        else:
            if status == 200:
                mistake |= not session.stop_asked if body["status"] in ENDED else session.stopped
            is_over = status == 404 and not session.start_asked
        if mistake:
            self.wrong.append(f"{operation} of {session_id}, {session}: {status} {body}")
        if is_over and not is_unknown and session_id in self._mine:
            self._mine.remove(session_id)
        return is_unknown

    def has(self, key: Key) -> bool:
        """Return whether this is one of its sessions that it will stop."""
        return key[0] == self._account and key[1] in self._mine

    def _held_by_account(self) -> set[Key]:
        """The sessions that may use the quota of the account now."""
        return {
            key
            for peer in self._peers
            for key, session in peer.sessions.items()
            if (session.start_asked or session.is_being_started) and not session.stopped
        }

    async def _call(self, operation: str, session_id: str) -> tuple[int | None, Any]:
        path = f"/session/{session_id}"
        start = {"location": "local", "image": "game", "id": session_id}
        method, path, body = {
            "start": ("POST", "/session", start),
            "stop": ("DELETE", path, None),
            "read": ("GET", path, None),
        }[operation]
        try:
            return await self._outlived.call(method, path, account=self._account, body=body)
        except ConnectionRefusedError:
            return NOBODY, None
        except NO_ANSWER:
            return None, None


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_f36_a_control_plane_killed_again_and_again_forgets_and_doubles_nothing(
    tmp_path: Path, rounds: Rounds, chance: Random, figure: Figure, pytestconfig: pytest.Config
) -> None:
    kills = rounds(5, 100)
    starts = STARTS if pytestconfig.getoption("long") else 1
    hosts = {"hosts": HOSTS, "sessions_each": SESSIONS_EACH}
    async with Outlived(tmp_path, **hosts, **SETTINGS) as outlived:
        for account in ACCOUNTS:
            await outlived.make_game(account)
            path = f"/operator/account/{account}"
            body = {"quota": {"sessions": QUOTA}}
            assert (await outlived.call("PUT", path, body=body))[0] == 204
        outlived.witness.most = MOST
        peers: dict[str, list[Caller]] = {account: [] for account in ACCOUNTS}
        callers = [
            Caller(peers[account], account, outlived, Random(chance.random()))
            for _ in range(CALLERS)
            for account in ACCOUNTS
        ]
        kills = await _killed_under_load(outlived, callers, kills, starts, chance)
        found = _mistakes(outlived, callers, await _reconciled(outlived))
        figure("SIGKILLs", kills)
        answers = sum((caller.answers for caller in callers), Counter[str]())
        for outcome in sorted(answers):
            figure(outcome, answers[outcome])
        for what, wrong in found.items():
            figure(what, len(wrong))
        assert not any(found.values()), found
        await _everything_is_given_back(outlived)


def _mistakes(
    outlived: Outlived, callers: list[Caller], known: dict[Key, str]
) -> dict[str, list[str]]:
    """Contradictions in the answers and in the runs of the hosts."""
    witness = outlived.witness
    running = witness.running
    live = [key for key, status in known.items() if status not in ENDED]
    lost = [wrong for caller in callers for wrong in caller.wrong]
    if sorted(live) != sorted(running):
        lost.append(f"live: {sorted(live)}, running: {sorted(running)}")
    for caller in callers:
        lost += [
            f"{key}, {session}: {known.get(key)}"
            for key, session in caller.sessions.items()
            if (session.started and key not in known)
            or (session.started and not session.stop_asked and key not in live)
            or (session.stopped and key in live)
            or (not session.start_asked and key in live)
        ]
    return {
        "two sessions of one id": [*witness.doubled, *doubled(outlived.sessions)],
        "sessions lost": lost,
        "sessions that nobody stops": [
            str(key) for key in live if not any(caller.has(key) for caller in callers)
        ],
        "quota exceeded": [*witness.beyond_quota, *beyond_quota(outlived.sessions, MOST)],
    }


async def _killed_under_load(
    outlived: Outlived, callers: list[Caller], kills: int, starts: int, chance: Random
) -> int:
    """Kill the control plane after a random time or at a random step, and restart it.

    Returns the number of kills, which goes beyond `kills` until enough starts are acknowledged.
    """
    serving = asyncio.Event()
    enough = asyncio.Event()
    killed = 0
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.run(serving, enough), name="caller")
        while killed < kills or sum(each.answers["start ok"] for each in callers) < starts:
            killed += 1
            step = chance.choice(("", chance.choice(STEPS)))
            if await outlived.serve(f"{step}:kill" if step else ""):
                serving.set()
                with suppress(TimeoutError):  # until it has killed itself
                    async with asyncio.timeout(chance.uniform(0, LONGEST_LIFE)):
                        await outlived.killed()
                serving.clear()
                outlived.process.kill()
        await outlived.serve()
        serving.set()
        enough.set()
    return killed


async def _reconciled(outlived: Outlived) -> dict[Key, str]:
    """Wait until callers see what hosts run; return the status of all that they see.

    On a timeout the returned status shows the difference.
    """
    known: dict[Key, str] = {}

    async def agree() -> bool:
        known.clear()
        for account in ACCOUNTS:
            _, body = await outlived.call("GET", "/session?all=true", account=account)
            known.update({(account, each["id"]): each["status"] for each in body["sessions"]})
        running = [key for key, status in known.items() if status == "running"]
        return set(known.values()) <= {"running", *ENDED} and (
            sorted(running) == sorted(outlived.witness.running)
        )

    with suppress(TimeoutError):
        await eventually(agree)
    return known


async def _everything_is_given_back(outlived: Outlived) -> None:
    """Check that all quota and room is free by using and releasing all of it."""
    for account, session_id in outlived.witness.running:
        stop = partial(outlived.call, "DELETE", f"/session/{session_id}", account=account)
        status, answer = await stop()
        if status == 503:  # the stop is retried after any error
            status, answer = await stop()
        assert status in {204, 409}, answer
    for account in ACCOUNTS:
        for number in range(QUOTA):
            body = {"location": "local", "image": "game", "id": f"last-{number}"}
            status, answer = await outlived.call("POST", "/session", account=account, body=body)
            assert status == 201, answer
    assert len(outlived.witness.running) == QUOTA * len(ACCOUNTS)
