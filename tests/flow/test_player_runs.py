"""Players and runs through both programs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flow.whole import Whole
from tests.support.controlplane.system import eventually


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path) as whole:
        yield whole


async def test_game_that_is_started_again_has_no_players(whole: Whole) -> None:
    await whole.make_game()
    (await whole.start(id="duel", restart=True)).expect(201)
    [container] = whole.engine.all
    body = {"session": "duel", "players": ["a", "b"]}
    (await whole.call("PUT", "/session/player/join", json=body)).expect(200)
    whole.engine.end(container.name, 139)

    async def is_empty() -> bool:
        players = (await whole.read("/session/duel"))["players"]
        return bool(players == {"joined": [], "joinedCount": 0})

    await eventually(is_empty)
    (await whole.call("DELETE", "/session/duel")).expect(204)
    report = await whole.read("/session/duel/report")
    assert [run["mostPlayers"] for run in report["failedRuns"]] == [2]
    assert report["mostPlayers"] == 0
