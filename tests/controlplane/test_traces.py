"""The traceparent of a start: in its row, on its host, in its events and in the log."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.controlplane.warm_pools import keep
from tests.support.controlplane.system import System, eventually_equals

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
HEADERS = {"Traceparent": TRACEPARENT}

pytestmark = pytest.mark.system(application={})


async def traces(system: System) -> set[str | None]:
    rows = await system.events("session.%", "data")
    return {json.loads(data)["traceparent"] for (data,) in rows}


async def test_trace_of_a_start_is_kept_with_its_session(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (await system.start(id="x", headers=HEADERS)).expect(201)
    (session,) = system.agent.live
    assert session.identity.traceparent == TRACEPARENT
    await system.restart()
    (await system.call("DELETE", "/session/x")).expect(204)
    await eventually_equals(lambda: system.events("session.ended", "object"), [("x",)])
    assert await traces(system) == {TRACEPARENT}
    [line] = [line for line in caplog.messages if line.startswith("session started")]
    assert f"trace_id={TRACE}" in line


INVALID = ["", "00-1-2-3", f"{TRACEPARENT}-x", TRACEPARENT.upper()]


@pytest.mark.parametrize("value", INVALID)
async def test_invalid_trace_is_ignored(system: System, value: str) -> None:
    (await system.start(id="x", headers={"traceparent": value})).expect(201)
    (session,) = system.agent.live
    assert session.identity.traceparent == ""
    assert await traces(system) == {None}


async def test_claimed_session_has_the_trace(system: System) -> None:
    await keep(system, 1)
    (await system.start(id="x", headers=HEADERS)).expect(201)
    (claim,) = system.agent.claimed
    assert claim.identity.traceparent == TRACEPARENT
    assert await system.rows("SELECT traceparent FROM session") == [(TRACEPARENT,)]


async def test_adopted_session_has_the_trace(system: System) -> None:
    (await system.start(id="x", headers=HEADERS)).expect(201)
    await system.stop_serving()
    with closing(sqlite3.connect(system.config.database, isolation_level=None)) as database:
        database.execute("DELETE FROM session")
        database.execute("DELETE FROM event")
        database.execute("UPDATE lost_time SET end_ms=NULL")
    await system.serve()
    await eventually_equals(lambda: system.events("session.adopted", "object"), [("x",)])
    await eventually_equals(
        lambda: system.rows("SELECT traceparent FROM session"), [(TRACEPARENT,)]
    )
    assert await traces(system) == {TRACEPARENT}
