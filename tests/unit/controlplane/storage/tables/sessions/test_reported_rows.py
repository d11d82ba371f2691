from controlplane.domain.sessions.adoption import Verdict
from controlplane.storage.engine.store import Store
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import attempt, report


async def test_row_that_another_session_takes_over_is_read_again(store: Store) -> None:
    await report(store, "h", attempt("b", 2))
    verdicts = await report(store, "h", attempt("a", 3), attempt("b", 2, detail="late"))
    assert verdicts == {"a": Verdict.KEEP, "b": Verdict.STOP}
    assert await rows(store, "SELECT internal_id, detail FROM session") == [("a", "")]
