"""Structured loggers on top of `logging`: events are a constant text and fields.

Nothing is written outside `output.written`.
"""

import logging
from contextvars import Context, copy_context
from typing import Any, TypeAlias, cast

import structlog
from structlog.contextvars import (
    bind_contextvars,
    clear_contextvars,
    get_contextvars,
    unbind_contextvars,
)
from structlog.stdlib import BoundLogger, filter_by_level
from structlog.typing import EventDict, WrappedLogger

STRUCTLOG_FRAMES = 4  # Stack frames between the standard library's logger and the line that logs

Logger: TypeAlias = BoundLogger
bind = bind_contextvars  # Add fields to subsequent log lines of this context
unbind = unbind_contextvars  # Remove fields from subsequent log lines of this context


class Event(dict[str, Any]):
    """The fields of an event. `str()` serves the handlers of other libraries, such as pytest's."""

    def __str__(self) -> str:
        fields = (f"{name}={value}" for name, value in self.items() if name != "event")
        return " ".join((str(self["event"]), *fields))


def get_logger(name: str) -> Logger:
    """Return a structured logger: `log.info("session started", session=internal_id)`."""
    processors = (filter_by_level, structlog.contextvars.merge_contextvars, _for_logging)
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=processors,
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast("Logger", logger)


def _for_logging(
    logger: WrappedLogger, name: str, fields: EventDict
) -> tuple[tuple[Event], dict[str, Any]]:
    """Pass an event to `logging` as its message, and `exc_info` in the standard way."""
    exc_info = fields.pop("exc_info", None)
    return (Event(fields),), {"exc_info": exc_info, "stacklevel": STRUCTLOG_FRAMES}


def task_context(*kept: str, **fields: str) -> Context:
    """Return a context for a task that outlives its creator: only the `kept` log fields."""
    now = get_contextvars()
    fields = {name: now[name] for name in kept if name in now} | fields
    own = copy_context()
    own.run(clear_contextvars)
    own.run(bind_contextvars, **fields)
    return own


def bound(name: str) -> str:
    """Return a log field of the context, empty if unset."""
    return str(get_contextvars().get(name, ""))
