"""Loggers of events: constant text and fields, by way of `logging`.

So levels and handlers work as anywhere, and libraries may log as they always do. Nothing is
written before `output.written` says where.
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

STRUCTLOG_FRAMES = 4
"""From the call of the standard library's logger to the line of code that logs."""

Logger: TypeAlias = BoundLogger
bind = bind_contextvars
"""Add fields to subsequent log lines of this context."""
unbind = unbind_contextvars
"""Remove fields from subsequent log lines of this context."""


class Event(dict[str, Any]):
    """The fields of an event; as text, for handlers other than ours, it is one after another."""

    def __str__(self) -> str:
        fields = (f"{name}={value}" for name, value in self.items() if name != "event")
        return " ".join((str(self["event"]), *fields))


def get_logger(name: str) -> Logger:
    """Give a logger of events: `log.info("session started", session=internal_id)`."""
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
    """Hand an event to `logging` as it is, and its error in the way that all handlers know."""
    exc_info = fields.pop("exc_info", None)
    return (Event(fields),), {"exc_info": exc_info, "stacklevel": STRUCTLOG_FRAMES}


def task_context(*kept: str, **fields: str) -> Context:
    """Make the context of a task that outlives its maker: of what that carries, only `kept`."""
    now = get_contextvars()
    fields = {name: now[name] for name in kept if name in now} | fields
    own = copy_context()
    own.run(clear_contextvars)
    own.run(bind_contextvars, **fields)
    return own


def bound(name: str) -> str:
    """Give what the context carries of a field, or nothing."""
    return str(get_contextvars().get(name, ""))
