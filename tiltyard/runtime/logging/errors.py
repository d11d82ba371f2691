"""Counts the unexpected errors of a program, which are the ones that it logs with a traceback."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def errors_counted(count: Callable[[], None]) -> Iterator[None]:
    """Call `count` for each error that any logger logs with a traceback, on the logging thread."""
    counter = _Counter(count)
    root = logging.getLogger()
    root.addHandler(counter)
    try:
        yield
    finally:
        root.removeHandler(counter)


class _Counter(logging.Handler):
    def __init__(self, count: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._count = count

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._count()
