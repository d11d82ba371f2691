"""Structured loggers on top of `logging`: events are a constant text and fields.

An event becomes a log record whose message is an `Event`, so that every handler of the process
sees it as it sees the records of libraries. Nothing is written outside `output.written`.
"""

import logging
from collections.abc import Mapping
from contextvars import Context, ContextVar, copy_context
from types import MappingProxyType
from typing import Any, Self

_FRAMES = 3  # Stack frames from the standard library's logger to the line that logs

_context: ContextVar[Mapping[str, Any]] = ContextVar("log fields", default=MappingProxyType({}))


class Event(dict[str, Any]):
    """The fields of an event. `str()` serves the handlers of other libraries, such as pytest's."""

    def __str__(self) -> str:
        fields = (f"{name}={value}" for name, value in self.items() if name != "event")
        return " ".join((str(self["event"]), *fields))


class Logger:
    """Logs events: `log.info("session started", session=internal_id)`.

    The fields of an event are its own, then those of `Logger.bind`, then those of its context.
    """

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: Mapping[str, Any]) -> None:
        self._logger = logger
        self._bound = bound

    def bind(self, **fields: Any) -> Self:
        """Return a logger whose events also have these fields."""
        return type(self)(self._logger, {**self._bound, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event at level debug."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log an event at level info."""
        if self._logger.isEnabledFor(logging.INFO):
            self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log an event at level warning."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log an event at level error."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._log(logging.ERROR, event, fields)

    def critical(self, event: str, **fields: Any) -> None:
        """Log an event at level critical."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._log(logging.CRITICAL, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an event at level error, with the traceback of the current exception."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._log(logging.ERROR, event, {"exc_info": True} | fields)

    def log(self, level: int, event: str, **fields: Any) -> None:
        """Log an event at a level."""
        if self._logger.isEnabledFor(level):
            self._log(level, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        exc_info = fields.pop("exc_info", None)
        message = Event(self._bound)
        message.update(fields)
        message["event"] = event
        for name, value in _context.get().items():
            message.setdefault(name, value)
        self._logger.log(level, message, exc_info=exc_info, stacklevel=_FRAMES)


def get_logger(name: str) -> Logger:
    """Return a logger of events."""
    return Logger(logging.getLogger(name), {})


def bind(**fields: Any) -> None:
    """Add fields to the subsequent events of this context."""
    _context.set({**_context.get(), **fields})


def unbind(*names: str) -> None:
    """Remove fields from the subsequent events of this context."""
    now = _context.get()
    _context.set({name: now[name] for name in now if name not in names})


def task_context(*kept: str, **fields: str) -> Context:
    """Return a context for a task that outlives its creator: only the `kept` log fields."""
    now = _context.get()
    own = copy_context()
    own.run(_context.set, {name: now[name] for name in kept if name in now} | fields)
    return own


def bound(name: str) -> str:
    """Return a log field of the context, empty if unset."""
    return str(_context.get().get(name, ""))
