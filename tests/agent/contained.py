"""Unexpected errors of calls about one session, and what must hold for all others."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from agent.domain.sessions.session import Session
from agent.sessions.life import Life
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, Identity, State

SCRIPTED = "RuntimeError: as scripted"
Fails = Callable[..., list[str]]


def mentions(value: object, internal_id: str) -> bool:
    """Whether an argument of a call is about a session."""
    return internal_id in repr(value.session if isinstance(value, Life) else value)


def failing_calls(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Let calls about one session fail; `fails(owner, name, id)` returns those that did."""

    def begin(owner: object, name: str, about: str, *, times: int = 1) -> list[str]:
        method: Any = inspect.getattr_static(owner, name)
        failed: list[str] = []

        def wrong(args: tuple[object, ...]) -> bool:
            if len(failed) >= times or not any(mentions(each, about) for each in args):
                return False
            failed.append(name)
            return True

        def failing(*args: Any, **named: Any) -> Any:
            if wrong(args):
                raise RuntimeError("as scripted")
            return method(*args, **named)

        async def failing_later(*args: Any, **named: Any) -> Any:
            if wrong(args):
                raise RuntimeError("as scripted")
            return await method(*args, **named)

        is_later = inspect.iscoroutinefunction(method)
        monkeypatch.setattr(owner, name, failing_later if is_later else failing)
        return failed

    return begin


def a_spec_of(account: str, **changes: Any) -> Any:
    identity = Identity(account, an_id(), "game", "v1", "local", {}, "", ticket="00ff")
    return a_spec(identity=identity, **changes)


async def started(agent: Agent, account: str = "acme", **changes: Any) -> Session:
    return await agent.sessions.start(an_id(), a_spec_of(account, **changes))


async def others_are_served(agent: Agent) -> None:
    """Start and end a session of another account."""
    assert agent.sessions.reconciled
    session = await started(agent, "other")
    await agent.ready(session.internal_id)
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert ended.state is State.EXITED


async def is_served(agent: Agent, internal_id: str) -> None:
    """The session runs, is ready, and can be stopped."""
    await agent.ready(internal_id)
    assert agent.now(internal_id).state is State.RUNNING
    ended = await agent.sessions.stop(internal_id, EndReason.STOPPED)
    assert ended.state is State.EXITED
