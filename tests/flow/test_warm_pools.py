"""Warm pools through both programs: standbys and claims after crashes of either one."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent.domain.sessions.session import Session
from agent.state.claims_journal import ClaimsJournal
from controlplane.domain.errors import AgentUnavailableError
from tests.flow.relay import RELAY, Relayed, a_relay
from tests.flow.whole import Whole
from tests.support.controlplane.system import Answer, eventually, eventually_equals

SIZE = 3


class Warm(Whole):
    """A host with a pool."""

    async def keep(self, size: int = SIZE) -> None:
        body = {"size": size, "labels": {"mode": "ffa"}}
        assert (await self.call("PUT", "/warm-pool/game/local", json=body)).status == 204
        await self.becomes_ready(size)

    async def becomes_ready(self, size: int) -> None:
        await self.until("/warm-pool", lambda shown: shown["warmPools"][0]["ready"] == size)

    @property
    def claimed(self) -> list[Session]:
        """The live sessions of the host that are not standbys."""
        return [session for session in self._live if not session.is_standby]

    @property
    def standbys(self) -> list[str]:
        return [session.internal_id for session in self._live if session.is_standby]

    @property
    def _live(self) -> list[Session]:
        return [session for session in self.host.recorded if not session.state.ended]

    async def lose_directory(self, internal_id: str) -> None:
        """Remove the host's record of a session, and restart its agent."""
        await self.host.stop()
        shutil.rmtree(self.host.config.state_dir / "sessions" / internal_id)
        await self.host.start()


class RelayedWarm(Warm, Relayed):
    """The same behind a relay."""


SETTINGS: dict[str, Any] = {
    "agent": {"cpu": 64, "ram": 65536},
    # On any machine: a claim that takes too long continues as a cold start.
    "start_timeout": 60.0,
    "unresponsive_after": 60.0,
    "start_rate": 1000.0,
    "start_burst": 1000,
}


@pytest.fixture
async def warm(tmp_path: Path) -> AsyncIterator[Warm]:
    async with Warm(tmp_path, **SETTINGS) as running:
        await running.make_game()
        yield running


async def test_f18_fifty_callers_share_what_is_ready(warm: Warm) -> None:
    await warm.keep(1)
    answers = await asyncio.gather(*(warm.start(id=f"s{n}") for n in range(50)))
    assert _statuses(answers) <= {201, 420}
    started = sorted(answer.json["id"] for answer in answers if answer.status == 201)
    await warm.becomes_ready(1)
    await eventually(lambda: sorted(_names(warm.claimed)) == started)
    assert any(session.claim is not None for session in warm.claimed)


async def test_f18_a_claimed_standby_without_its_directory_is_never_handed_out_twice(
    warm: Warm,
) -> None:
    await warm.keep(1)
    assert (await warm.start(id="first")).status == 201
    [session] = warm.claimed
    restarted = asyncio.create_task(warm.lose_directory(session.internal_id))
    answers = await asyncio.gather(*(warm.start(id=f"s{n}") for n in range(50)))
    await restarted
    assert _statuses(answers) <= {201, 420}

    def is_first_again() -> bool:
        again = [each for each in warm.claimed if each.internal_id == session.internal_id]
        return _names(again) == ["first"]

    await eventually(is_first_again)
    await warm.becomes("first", "running")
    await warm.becomes_ready(1)
    started = [answer.json["id"] for answer in answers if answer.status == 201]
    await eventually(lambda: sorted(_names(warm.claimed)) == sorted(["first", *started]))


async def test_f18_answers_that_are_lost_leave_nothing_claimed_that_nobody_owns(
    warm: Warm, monkeypatch: pytest.MonkeyPatch, rounds: Callable[[int, int], int]
) -> None:
    chance = Random(18)
    await warm.keep(10)
    link = warm.link(warm.host.name)
    claim = link.state.client.claim_session

    async def lossy(*asked: object) -> object:
        if chance.random() < 0.3:
            raise AgentUnavailableError("the request was lost")
        answer = await claim(*asked)  # type: ignore[arg-type]
        if chance.random() < 0.3:
            raise AgentUnavailableError("the answer was lost")
        return answer

    monkeypatch.setattr(link.state.client, "claim_session", lossy)
    count = rounds(40, 400)
    started: list[str] = []
    for first in range(0, count, 40):
        names = [f"s{number}" for number in range(first, first + 40)]
        answers = await asyncio.gather(*(warm.start(id=name) for name in names))
        assert _statuses(answers) <= {201, 420}
        new = [answer.json["id"] for answer in answers if answer.status == 201]
        await asyncio.gather(*(warm.call("DELETE", f"/session/{name}") for name in new[:-1]))
        started += new[-1:]
    monkeypatch.undo()
    await warm.becomes_ready(10)
    await eventually(lambda: sorted(_names(warm.claimed)) == sorted(started))
    unanswered = "SELECT 1 FROM stop_order WHERE confirmed_ms IS NULL"
    await eventually_equals(lambda: warm.rows(unanswered), [])


async def test_f50_claims_whose_stream_breaks_are_done_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = ClaimsJournal.append
    gate = asyncio.Event()
    begun = []

    async def held(journal: ClaimsJournal, internal_id: str, record: bytes) -> None:
        begun.append(internal_id)
        await gate.wait()
        await append(journal, internal_id, record)

    async with (
        a_relay(tmp_path / RELAY, tmp_path / "host-1.sock") as relay,
        RelayedWarm(tmp_path, **SETTINGS) as warm,
    ):
        await warm.make_game()
        await warm.keep(10)
        monkeypatch.setattr(ClaimsJournal, "append", held)
        starts = [asyncio.create_task(warm.start(id=f"s{n}"), name="start") for n in range(10)]
        await eventually(lambda: len(begun) == 10)
        relay.reset()
        gate.set()
        assert _statuses(await asyncio.gather(*starts)) == {201}
        await eventually(lambda: sorted(_names(warm.claimed)) == [f"s{n}" for n in range(10)])
        assert not set(begun) & {session.internal_id for session in warm.claimed}
        await warm.becomes_ready(10)
        unanswered = "SELECT 1 FROM stop_order WHERE confirmed_ms IS NULL"
        await eventually_equals(lambda: warm.rows(unanswered), [])


def _statuses(answers: list[Answer]) -> set[int]:
    return {answer.status for answer in answers}


def _names(sessions: list[Session]) -> list[str]:
    return [session.spec.identity.session_id for session in sessions]
