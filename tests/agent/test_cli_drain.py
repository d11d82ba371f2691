"""`tiltyard-agent drain` and `undrain` against an agent that serves."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.served import Served, served
from tests.support.fakes import FakeClock, FakeEngine
from tiltyard.contract import State


@pytest.fixture
async def host(tmp_path: Path, engine: FakeEngine, clock: FakeClock) -> AsyncIterator[Served]:
    async with served(tmp_path, engine, clock) as agent:
        yield agent


async def test_an_empty_host_is_said_to_be_empty(host: Served) -> None:
    assert await host.ok("drain") == "The host is empty.\n"
    answer = json.loads(await host.ok("drain", "--json"))
    assert answer["live_sessions"] == []


async def test_a_drain_lists_what_remains_and_until_when(host: Served) -> None:
    endless = await host.sessions.start(an_id(), a_spec())
    lines = (await host.ok("drain")).splitlines()
    assert lines[0] == "Sessions without a lifetime remain until they end by themselves."
    assert lines[2].startswith(endless.internal_id)
    lines = (await host.ok("drain", "--deadline", "2h")).splitlines()
    assert lines[0] == "The host is empty by 2027-01-15 10:00:00Z at the latest."
    assert len(lines) == 3
    assert await host.ok("undrain") == ""
    assert json.loads(await host.ok("undrain", "--json")) == {"sessions": 1}
    again = await host.sessions.start(an_id(), a_spec())
    assert again.state is State.RUNNING


@pytest.mark.parametrize("text", ["", "1", "1h1h", "-5m", "٣m"])
async def test_a_span_that_is_none_is_refused(host: Served, text: str) -> None:
    result = await host.run("drain", "--deadline", text)
    assert result.exit_code == 2
    assert "has not the form 1h30m" in result.output


async def test_a_deadline_is_at_most_a_year(host: Served) -> None:
    result = await host.run("drain", "--deadline", "8760h1m")
    assert result.exit_code == 2
    assert "is longer than 8760 hours" in result.output
