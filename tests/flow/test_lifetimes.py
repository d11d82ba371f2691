"""F28: lifetimes as callers write them, from the request to the host's record."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.whole import CLOCK, Whole
from tests.support.controlplane.system import assert_error

HOUR = 3600


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path) as whole:
        await whole.make_game()
        yield whole


def _record(whole: Whole, session_id: str) -> dict[str, Any]:
    """What the host remembers of a session."""
    paths = (whole.host.config.state_dir / "sessions").glob("*/record.json")
    records = [json.loads(path.read_text()) for path in paths]
    [found] = [one for one in records if one["spec"]["identity"]["session_id"] == session_id]
    return dict(found)


TAKEN = [
    ("0m", 60),
    ("0h0m", 60),
    ("000000h000000m", 60),
    ("1m", 60),
    ("59m", 59 * 60),
    ("90m", 90 * 60),
    ("1h1m", HOUR + 60),
    ("8760h", 8760 * HOUR),
    ("525600m", 8760 * HOUR),
    ("8759h60m", 8760 * HOUR),
]
REFUSED: list[object] = [
    "",
    "59s",
    "1h1h",
    "1m1h",
    "-1h",
    "+1h",
    "1.5h",
    "1e3h",
    "1_0h",
    "1 h",
    " 1h",
    "1h\n",
    "1H",
    "h",
    "60",
    "\u0663h",
    "1h\u0663m",
    "\uff11h",
    "\u00b2h",
    "1\u04bb",
    "8760h1m",
    "8761h",
    "525601m",
    "9999999999h",
    "9" * 5000 + "m",
    60,
    60.0,
    True,
    ["1h"],
    {"h": 1},
]


async def test_f28_a_lifetime_is_counted_from_the_start_and_is_a_minute_at_least(
    whole: Whole,
) -> None:
    for ttl, seconds in TAKEN:
        answer = await whole.start(id=ttl, ttl=ttl)
        assert answer.status == 201, (ttl, answer.text)
        session = _record(whole, ttl)
        assert session["spec"]["ttl"] == seconds, ttl
        deadline, now = session["deadline"], CLOCK.boottime()
        assert deadline["expire_time"] >= session["start_time"] + seconds, ttl
        assert now < deadline["boottime"] <= now + seconds, ttl
        assert (await whole.call("DELETE", f"/session/{ttl}")).status == 204


async def test_f28_without_a_lifetime_nothing_is_due(whole: Whole) -> None:
    assert (await whole.start(id="one", ttl=None)).status == 201
    session = _record(whole, "one")
    assert (session["spec"]["ttl"], session["deadline"]) == (None, None)


async def test_f28_what_is_no_lifetime_is_a_422_that_starts_nothing(whole: Whole) -> None:
    for ttl in REFUSED:
        assert_error(await whole.start(ttl=ttl), 422, "ttl")
    await whole.nothing_is_left_anywhere()
