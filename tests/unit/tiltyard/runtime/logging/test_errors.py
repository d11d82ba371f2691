import logging

from tiltyard.runtime.logging.errors import errors_counted
from tiltyard.runtime.logging.events import get_logger


def test_errors_with_a_traceback_are_counted_and_nothing_else() -> None:
    counted: list[int] = []
    log = get_logger("agent.x")
    odd = ValueError("odd")
    with errors_counted(lambda: counted.append(1)):
        log.error("cannot do it: internal error", exc_info=odd)
        logging.getLogger("asyncio").error("of a library", exc_info=odd)
        log.warning("with a traceback", exc_info=odd)
        log.error("without a traceback")
    log.error("after the program", exc_info=odd)
    assert len(counted) == 2
