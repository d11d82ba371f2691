"""Hooks between a use case and its database transaction."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from controlplane.storage.engine.store import Store

Go = Callable[[], Awaitable[Any]]  # Runs the transaction


def intercept(
    monkeypatch: pytest.MonkeyPatch, function: object, around: Callable[[Go], Awaitable[Any]]
) -> None:
    """Run `around` in place of each call of a transaction, look or read."""

    def patch(name: str, place: int) -> None:
        original = getattr(Store, name)

        async def intercepted(*args: Any, **more: Any) -> Any:
            go = partial(original, *args, **more)
            return await (around(go) if args[place] is function else go())

        monkeypatch.setattr(Store, name, intercepted)

    patch("run_then", 2)  # which `run` calls
    patch("look", 1)
    patch("read", 1)


def fail_once(error: Exception) -> Callable[[Go], Awaitable[Any]]:
    """Fail the first call."""
    errors = [error]

    async def around(go: Go) -> Any:
        if errors:
            raise errors.pop()
        return await go()

    return around
