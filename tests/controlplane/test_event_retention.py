"""Old events are deleted in portions."""

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.storage.engine.statements import PORTION
from tests.controlplane.test_api_audit import DAY, audit, write
from tests.support.controlplane.system import System


@pytest.mark.system(audit_retention_days=2)
async def test_old_events_are_deleted_in_portions(system: System) -> None:
    now = system.clock.time()
    await system.rows("DELETE FROM event")
    old = [(now - 2 * DAY - 1, "old.x", "", Actor("x"), "o")] * (2 * PORTION + 7)
    await write(system, *old, *([(now - 2 * DAY + 60, "young.x", "", Actor("x"), "o")] * 3))
    await system.control_plane.upkeep.forget()
    assert [event["kind"] for event in await audit(system)] == ["young.x"] * 3


@pytest.mark.system(audit_retention_days=2)
async def test_events_dated_ahead_do_not_end_the_deletion_of_old_ones(system: System) -> None:
    await system.rows("DELETE FROM event")
    ahead = [(1e10, "ahead.x", "", Actor("x"), "o")] * PORTION
    old = [(0.001, "old.x", "", Actor("x"), "o")] * (PORTION + 3)
    await write(system, *ahead, *old, *ahead[:1])
    await system.control_plane.upkeep.forget()
    kinds = "SELECT kind, count(*) FROM event GROUP BY kind"
    assert await system.rows(kinds) == [("ahead.x", PORTION + 1)]
