import logging
from typing import Any

from tests.support.read_back import log, said
from tiltyard.runtime.logging.events import Event
from tiltyard.runtime.logging.output import AT_ONCE, INTERVAL_SECONDS, Limit


def a_record(event: str, *, level: int = logging.WARNING, **more: Any) -> logging.LogRecord:
    message = Event(event=event, **more)
    return logging.LogRecord("agent.x", level, "x.py", 1, message, (), None)


def test_passes_a_burst_and_then_one_line_a_minute() -> None:
    now = [0.0]
    limit = Limit({"request refused"}, lambda: now[0])

    def passed(record: logging.LogRecord) -> int | None:
        return getattr(record, "left_out", 0) if limit.filter(record) else None

    storm = [a_record("cannot", session=str(number)) for number in range(1_000)]
    assert [passed(each) for each in storm] == [0] * AT_ONCE + [None] * (1_000 - AT_ONCE)
    assert passed(a_record("something else")) == 0
    now[0] = INTERVAL_SECONDS
    assert [passed(a_record("cannot")) for _ in range(2)] == [1_000 - AT_ONCE, None]
    now[0] += INTERVAL_SECONDS * AT_ONCE
    assert [passed(a_record("cannot")) for _ in range(2)] == [1, 0]
    for _ in range(10 * AT_ONCE):
        assert passed(a_record("session started", level=logging.INFO)) == 0
    refused = [a_record("request refused", level=logging.INFO, status=404) for _ in range(50)]
    assert sum(passed(each) is not None for each in refused) == AT_ONCE
    assert passed(a_record("request refused", level=logging.INFO, status=401)) == 0


def test_level_debug_drops_nothing() -> None:
    def log_all() -> None:
        for _ in range(5 * AT_ONCE):
            log.warning("it came")

    assert len(said(log_all)) == AT_ONCE
    logging.getLogger().setLevel(logging.DEBUG)  # as by a reload
    limit = Limit()
    try:
        assert all(limit.filter(a_record("it came")) for _ in range(5 * AT_ONCE))
    finally:
        logging.getLogger().setLevel(logging.WARNING)
