"""Prepared containers through both programs: orders, starts, replacements."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.domain.containers.engine import container_name
from tests.flow.whole import Whole
from tests.support.controlplane.system import eventually


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path, agent={"prepared": 4}) as whole:
        yield whole


def kept(whole: Whole) -> int:
    """Return how many prepared containers the control plane knows of."""
    report = whole.link("host-1").state.report
    return 0 if report is None else sum(shape.kept for shape in report.prepared.values())


async def keeps(whole: Whole, count: int) -> None:
    await eventually(lambda: kept(whole) == count)


async def report_of(whole: Whole, session_id: str) -> Any:
    """Stop a session; return its report."""
    (await whole.call("DELETE", f"/session/{session_id}")).expect(204)
    return await whole.read(f"/session/{session_id}/report")


async def test_first_start_of_a_tag_finds_a_prepared_container(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    [waiting] = whole.engine.all
    (await whole.start(id="duel", args=["-x"], env={"A": "b"}, ttl="1h")).expect(201)
    assert [start.program[-1:] for start in waiting.starts] == [("-x",)]
    assert (await report_of(whole, "duel"))["prepared"] is True


async def test_used_container_is_replaced(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    [taken] = whole.host.daemon.prepared.stock
    (await whole.start(id="first")).expect(201)
    await eventually(lambda: any(each != taken for each in whole.host.daemon.prepared.stock))
    (await whole.start(id="second")).expect(201)
    assert (await report_of(whole, "second"))["prepared"] is True


async def test_one_of_two_starts_finds_the_only_prepared_container(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    answers = await asyncio.gather(whole.start(id="one"), whole.start(id="two"))
    assert [answer.status for answer in answers] == [201, 201]
    reports = [await report_of(whole, session_id) for session_id in ("one", "two")]
    assert sorted(report["prepared"] for report in reports) == [False, True]


async def test_start_with_a_pinned_port_leaves_the_prepared_container(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    first, _ = whole.host.config.ports()
    pin = {"container": 7777, "type": "udp", "host": first + 50}
    (await whole.start(id="duel", ports=[pin])).expect(201)
    assert (await report_of(whole, "duel"))["prepared"] is False
    assert kept(whole) == 1


async def test_restarted_control_plane_knows_what_is_kept(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    await whole.restart()
    await keeps(whole, 1)
    (await whole.start(id="duel")).expect(201)
    assert (await report_of(whole, "duel"))["prepared"] is True


async def test_session_whose_host_lost_its_record_is_whole_again(whole: Whole) -> None:
    await whole.make_game()
    await keeps(whole, 1)
    [container] = whole.engine.all
    (await whole.start(id="duel", labels={"mode": "ffa"}, ttl="1h")).expect(201)
    [before] = whole.host.recorded
    await eventually(lambda: container.name == container_name(before.internal_id))
    await whole.host.stop()
    await asyncio.to_thread(shutil.rmtree, whole.host.config.state_dir / "sessions")
    await whole.host.start()

    await eventually(lambda: [each.is_standby for each in whole.host.recorded] == [False])
    [after] = whole.host.recorded
    ticket = after.spec.identity.ticket
    assert after.spec.identity == replace(before.spec.identity, ticket=ticket)
    assert after.internal_id == before.internal_id
    assert after.ports == before.ports
    assert before.deadline is not None
    assert after.deadline is not None
    assert abs(after.deadline.expire_time - before.deadline.expire_time) < 60
    assert len(container.starts) == 1
    assert await whole.status_of("duel") == "running"
    assert (await report_of(whole, "duel"))["prepared"] is True
