"""Reports of hosts are written in their order."""

import asyncio
from dataclasses import replace

from controlplane.domain.hosts.contract import TicketContents
from controlplane.fleet.host.reports import Reports
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import queue_as
from tests.support.controlplane.system import eventually
from tests.support.controlplane.transactions import blocked
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows

NOW = 100.0


async def test_answer_of_a_start_is_not_written_over_a_later_report(store: Store) -> None:
    """Its task queues other jobs under the account of its caller."""
    reports = Reports(store, read_ticket=lambda *_: TicketContents(90_000, 1, 1), keep_ended=50.0)
    answer = replace(SESSION, identity=replace(SESSION.identity, account="alice"))
    await reports.write("h", (answer,), NOW)

    async def answer_start() -> None:
        queue_as("alice")
        others = [store.run(lambda _: None) for _ in range(3)]
        late = replace(answer, detail="answered")
        await asyncio.gather(*others, reports.write("h", (late,), NOW))

    async with blocked(store.run):
        answered = asyncio.create_task(answer_start())
        await eventually(lambda: store._writer.waiting() == 4)
        later = replace(answer, ready_time=50.0)
        watched = asyncio.create_task(reports.write("h", (later,), NOW))
        await eventually(lambda: store._writer.waiting() == 5)
    await asyncio.gather(answered, watched)
    assert await rows(store, "SELECT ready_ms FROM session") == [(50_000,)]
