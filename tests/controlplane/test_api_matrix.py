"""Who may do what to what: every route, each scope alone, whose object, both accounts.

Generated from the route table. A route without a case here fails `test_every_route_has_a_case`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane import tokens
from controlplane.account_store import _insert_token
from controlplane.api.routes import ROUTES, Route
from controlplane.tokens import Scope, grants
from tests.controlplane.system import APPLICATION, Answer, System, assert_error

ACCOUNTS = ("alice", "bob")
UNKNOWN = "nobodys"
_numbers = itertools.count()


class World(System):
    """Each account has a game of its own name, pulled, and a session of it."""

    async def fill(self) -> None:
        for account in ACCOUNTS:
            await self.make_application(account=account, name=f"{account}s-game")
            await self.session(account)

    async def token(self, account: str, scope: Scope, **changes: int) -> str:
        """Make a token with one scope and nothing else, past any rule of delegation."""
        token = tokens.mint()
        await self.control_plane._store.run(
            lambda db: _insert_token(db, account, token, {scope}, 0)
        )
        for column, value in changes.items():
            await self.rows(f"UPDATE token SET {column}=? WHERE id=?", value, token.token_id)
        return token.text

    async def application(self, account: str) -> str:
        return f"{account}s-game"

    async def session(self, account: str) -> str:
        name = f"{account}s-session-{next(_numbers)}"
        body = {"location": "local", "image": f"{account}s-game", "id": name}
        started = await self.call("POST", "/session", account=account, json=body)
        assert started.status == 201, started.text
        return name

    async def ended_session(self, account: str) -> str:
        name = await self.session(account)
        ended = await self.call("DELETE", f"/session/{name}", account=account)
        assert ended.status == 204, ended.text
        return name

    async def written(self) -> list[list[tuple[Any, ...]]]:
        """Read everything that callers can change; the last use of a token is not of it."""
        tables = ("session", "player", "application", "tag", "event")
        found = [await self.rows(f"SELECT * FROM {table}") for table in tables]
        return [*found, await self.rows("SELECT id, name, revoked_ms FROM token")]


@dataclass(frozen=True)
class Case:
    """A route's request about an object; `make` gives one of an account, None when it has none.

    A route without an object works on the caller's account; `shows` says what of the account a
    list must hold, and of the other must not.
    """

    status: int
    request: Callable[[str], tuple[str, dict[str, Any]]]
    make: Callable[[World, str], Awaitable[str]] | None = None
    shows: str = ""


def _at(path: str, **more: Any) -> Callable[[str], tuple[str, dict[str, Any]]]:
    return lambda name: (path.format(name), more)


def _players(path: str) -> Callable[[str], tuple[str, dict[str, Any]]]:
    return lambda name: (path, {"json": {"session": name, "players": ["p"]}})


def _token(_: str) -> tuple[str, dict[str, Any]]:
    return "/token", {"json": {"name": f"made-{next(_numbers)}", "scopes": []}}


def _new_application(_: str) -> tuple[str, dict[str, Any]]:
    return "/application", {"json": APPLICATION | {"name": f"made-{next(_numbers)}"}}


CASES: dict[tuple[str, str], Case] = {
    ("POST", "/session"): Case(
        201,
        lambda name: ("/session", {"json": {"location": "local", "image": name}}),
        World.application,
    ),
    ("GET", "/session"): Case(200, _at("/session?all=1"), shows="{}s-session-"),
    ("GET", "/session/{id}"): Case(200, _at("/session/{}"), World.session),
    ("DELETE", "/session/{id}"): Case(204, _at("/session/{}"), World.session),
    ("PUT", "/session/player/join"): Case(200, _players("/session/player/join"), World.session),
    ("DELETE", "/session/player/leave"): Case(
        200, _players("/session/player/leave"), World.session
    ),
    ("GET", "/logs"): Case(200, _at("/logs?id={}"), World.session),
    ("GET", "/artifacts"): Case(200, _at("/artifacts?session={}&path=/data"), World.ended_session),
    ("POST", "/application"): Case(201, _new_application),
    ("GET", "/application"): Case(200, _at("/application"), shows="{}s-game"),
    ("PUT", "/application/{name}"): Case(
        204, _at("/application/{}", json={"tagKeep": 9}), World.application
    ),
    ("POST", "/application/{name}/tags"): Case(
        204, _at("/application/{}/tags", json={"tag": "v1"}), World.application
    ),
    ("GET", "/available-location/{image}"): Case(
        200, _at("/available-location/{}"), World.application
    ),
    ("GET", "/tag/{region}/{image}/{version}"): Case(
        200, _at("/tag/local/{}/v1"), World.application
    ),
    ("GET", "/region"): Case(200, _at("/region")),
    ("POST", "/token"): Case(201, _token),
    ("GET", "/healthz"): Case(200, _at("/healthz")),
    ("GET", "/readyz"): Case(200, _at("/readyz")),
}
SCOPED = [route for route in ROUTES if route.scope is not None]


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_route_has_a_case() -> None:
    assert list(CASES) == [(route.method, route.path) for route in ROUTES]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path) as running:
        await running.fill()
        yield running


async def _ask(world: World, route: Route, object_name: str, token: str) -> Answer:
    path, more = CASES[route.method, route.path].request(object_name)
    return await world.call(route.method, path, token=token, **more)


async def _objects(world: World, case: Case, account: str) -> list[tuple[str, int]]:
    """Give the objects to ask for, each with the status that a sufficient scope gets."""
    if case.make is None:
        return [("", case.status)]
    own, foreign = await case.make(world, account), await case.make(world, _other(account))
    return [(foreign, 404), (UNKNOWN, 404), (own, case.status)]


def _other(account: str) -> str:
    return ACCOUNTS[1 - ACCOUNTS.index(account)]


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("route", SCOPED, ids=_name)
async def test_without_the_scope_nothing_is_told_or_done(
    world: World, route: Route, account: str
) -> None:
    assert route.scope is not None
    lacking = [scope for scope in Scope if not grants({scope}, route.scope)]
    refused = {await world.token(account, scope): 403 for scope in lacking}
    refused |= {
        await world.token(account, route.scope, revoked_ms=1): 401,
        await world.token(account, route.scope, expire_ms=1): 401,
        tokens.mint().text: 401,
    }
    objects = await _objects(world, CASES[route.method, route.path], account)
    before = await world.written()
    for (token, status), (name, _) in itertools.product(refused.items(), objects):
        answer = await _ask(world, route, name, token)
        assert_error(answer, status)
        assert status == 401 or route.scope in answer.json["details"]
    assert await world.written() == before


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("route", SCOPED, ids=_name)
async def test_with_the_scope_alone_ones_own_is_reached_and_no_other(
    world: World, route: Route, account: str
) -> None:
    assert route.scope is not None
    case = CASES[route.method, route.path]
    for scope in Scope:
        if not grants({scope}, route.scope):
            continue
        token = await world.token(account, scope)
        for name, status in await _objects(world, case, account):
            before = await world.written()
            answer = await _ask(world, route, name, token)
            assert answer.status == status, answer.text
            if status == 404:
                assert_error(answer, 404)
                assert status in route.errors
                assert await world.written() == before
            if case.shows:
                assert case.shows.format(account) in answer.text
                assert case.shows.format(_other(account)) not in answer.text


async def test_routes_without_a_scope_need_no_token(world: World) -> None:
    for route in (route for route in ROUTES if route.scope is None):
        case = CASES[route.method, route.path]
        assert (await _ask(world, route, "", "no-token")).status == case.status
