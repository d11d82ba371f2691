"""`tiltyard-agent drain` and `undrain` against an agent that serves."""

import itertools
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.kernel.clock import SystemHostClock
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.served import Served, served
from tests.support.fakes import FakeClock, FakeEngine
from tiltyard.contract import State

CLOCK = SystemHostClock()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, FakeEngine(FakeClock(CLOCK.time())), CLOCK) as agent:
        yield agent


async def test_an_empty_host_is_said_to_be_empty(host: Served) -> None:
    assert await host.ok("drain") == "The host is empty.\n"
    assert (await host.run("status")).exit_code == 0
    answer = json.loads(await host.ok("drain", "--json"))
    assert answer["live_sessions"] == []


async def test_what_holds_a_host_up_comes_first(host: Served) -> None:
    endless = await host.sessions.start(an_id(), a_spec())
    bounded = await host.sessions.start(an_id(), a_spec(ttl=3601.0))
    lines = (await host.ok("drain")).splitlines()
    assert lines[0].startswith("Nothing says when the host is empty")
    assert lines[1].split("  ")[0] == "ENDS IN"
    assert re.fullmatch(rf"never +{endless.internal_id}  game  .*", lines[2])
    assert re.fullmatch(rf"(1 h|59 min).*  {bounded.internal_id}  game  .*", lines[3])
    lines = (await host.ok("drain", "--deadline", "30m")).splitlines()
    assert re.fullmatch(r"The host is empty in (30 min|29 min .*) at the latest\.", lines[0])
    assert len(lines) == 4
    assert await host.ok("undrain") == ""
    assert json.loads(await host.ok("undrain", "--json")) == {"sessions": 2}
    again = await host.sessions.start(an_id(), a_spec())
    assert again.state is State.RUNNING


async def test_a_deadline_is_said_as_it_was_asked_for(
    host: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = await host.sessions.start(an_id(), a_spec())
    slow_machine = itertools.count(CLOCK.time(), 30)
    clock = SimpleNamespace(time=lambda: next(slow_machine))
    monkeypatch.setattr("agent.cli.drain.time", clock)
    first, _, line = (await host.ok("drain", "--deadline", "2h")).splitlines()
    assert first == "The host is empty in 2 h at the latest."
    assert re.fullmatch(rf"2 h +{endless.internal_id}  game  .*", line)


@pytest.mark.parametrize("text", ["", "1", "1h1h", "-5m", "1d", "٣m", "9999999h"])
async def test_a_span_that_is_none_is_refused(host: Served, text: str) -> None:
    result = await host.run("drain", "--deadline", text)
    assert result.exit_code == 2
    assert "has not the form 1h30m" in result.output


async def test_a_deadline_is_at_most_a_year(host: Served) -> None:
    result = await host.run("drain", "--deadline", "8760h1m")
    assert result.exit_code == 2
    assert "is longer than 8760 hours" in result.output
