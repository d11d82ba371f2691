"""Fields that all lines of a task carry, such as the request that it answers."""

from contextvars import Context, copy_context

from structlog.contextvars import (
    bind_contextvars,
    clear_contextvars,
    get_contextvars,
    unbind_contextvars,
)


def task_context(*kept: str, **fields: str) -> Context:
    """Make the context of a task that outlives its maker: of what that carries, only `kept`."""
    now = get_contextvars()
    fields = {name: now[name] for name in kept if name in now} | fields
    own = copy_context()
    own.run(clear_contextvars)
    own.run(bind_contextvars, **fields)
    return own


def bind(**fields: str) -> None:
    """Add fields to subsequent log lines of this context."""
    bind_contextvars(**fields)


def unbind(name: str) -> None:
    """Remove a field from subsequent log lines of this context."""
    unbind_contextvars(name)


def bound(name: str) -> str:
    """Give what the context carries of a field, or nothing."""
    return str(get_contextvars().get(name, ""))
