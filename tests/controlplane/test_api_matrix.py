"""Access matrix: every route with each scope, own and foreign objects, both accounts.

Generated from the route table. A route without a case here fails `test_every_route_has_a_case`.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.operations.operation import Route
from controlplane.api.routes import ROUTES
from controlplane.domain import tokens
from controlplane.domain.tokens import OPERATOR_SCOPES, Scope, grants
from controlplane.storage.tables.tokens import insert_token
from tests.support.controlplane.system import APPLICATION, Answer, System, assert_error

ACCOUNTS = ("alice", "bob")
UNKNOWN = "nobodys"
_numbers = itertools.count()


class World(System):
    """Each account has an application with a pulled tag, a warm pool and a session.

    Operators' tokens belong to no account and may access every account's objects.
    """

    async def fill(self) -> None:
        for account in ACCOUNTS:
            await self.make_application(account=account, name=f"{account}s-game")
            await self.warm_pool(account)
            await self.session(account)

    async def token(self, account: str, scope: Scope, **changes: int) -> str:
        """Create a token with one scope, bypassing delegation.

        It is the account's, or an operator's if the scope is one of theirs.
        """
        token, owner = tokens.mint(), None if scope in OPERATOR_SCOPES else account
        await self.control_plane.store.run(lambda db: insert_token(db, owner, token, {scope}, 0))
        for column, value in changes.items():
            await self.rows(f"UPDATE token SET {column}=? WHERE id=?", value, token.token_id)
        return token.text

    async def application(self, account: str) -> str:
        return f"{account}s-game"

    async def warm_pool(self, account: str) -> str:
        """Set a pool; the application has its name."""
        name = await self.application(account)
        path = f"/warm-pool/{name}/local"
        made = await self.call("PUT", path, account=account, json={"size": 1})
        assert made.status == 204, made.text
        return name

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

    async def application_path(self, account: str) -> str:
        return f"{account}/{await self.application(account)}"

    async def session_path(self, account: str) -> str:
        return f"{account}/{await self.session(account)}"

    async def account(self, account: str) -> str:
        """Make an account that can be removed."""
        body = {"name": f"{account}s-account-{next(_numbers)}"}
        made = await self.call("POST", "/operator/account", json=body)
        assert made.status == 201, made.text
        return body["name"]

    async def token_id(self, account: str) -> str:
        return (await self.token(account, Scope.LOGS_READ)).split("_")[1]

    async def region(self, account: str) -> str:
        return await self.put("region", account)

    async def node_pool(self, account: str) -> str:
        return await self.put("node-pool", account, {})

    async def registry_of(self, account: str) -> str:
        number = next(_numbers)
        return await self.put("registry", account, {"address": f"{account}-{number}.example"})

    async def agent_of(self, account: str) -> str:
        name = f"{account}s-agent-{next(_numbers)}"
        await self.add_agent(name)
        return name

    async def enrolled_agent_of(self, account: str) -> str:
        name = await self.agent_of(account)
        await self.rows("UPDATE agent SET id=name WHERE name=?", name)
        return name

    async def put(self, kind: str, account: str, body: dict[str, Any] | None = None) -> str:
        """Make an object that can be removed."""
        name = f"{account}s-{kind}-{next(_numbers)}"
        path = f"/operator/{kind}/{name}"
        made = await self.call("PUT", path, json=body)
        assert made.status == 204, made.text
        return name

    async def written(self) -> list[list[tuple[Any, ...]]]:
        """Read everything that callers can change, except the last use of tokens."""
        tables = (
            *("account", "session", "player", "application", "tag", "warm_pool", "event"),
            *("region", "node_pool", "registry", "agent", "enrolment_token"),
        )
        found = [await self.rows(f"SELECT * FROM {table}") for table in tables]
        return [*found, await self.rows("SELECT id, name, revoked_ms FROM token")]


@dataclass(frozen=True)
class Case:
    """A route's request about an object; `make` creates one of an account.

    Without `make` the route works on the caller's account; `shows` is what a list must contain of
    the account and must not contain of the other, unless the route is an operator's.
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


def _token_of(account: str) -> tuple[str, dict[str, Any]]:
    body = {"account": account, "name": f"made-{next(_numbers)}", "scopes": []}
    return "/operator/token", {"json": body}


def _any_session(path: str) -> tuple[str, dict[str, Any]]:
    account, _, name = path.partition("/")
    return f"/operator/session/{account}/{name or UNKNOWN}", {}


def _placement(path: str) -> tuple[str, dict[str, Any]]:
    account, _, name = path.partition("/")
    params = {"account": account, "image": name or UNKNOWN, "location": "local"}
    return "/operator/placement", {"params": params}


def _new(kind: str, **body: str) -> Callable[[str], tuple[str, dict[str, Any]]]:
    return lambda _: (f"/operator/{kind}/made-{next(_numbers)}", {"json": body})


def _new_account(_: str) -> tuple[str, dict[str, Any]]:
    return "/operator/account", {"json": {"name": f"made-{next(_numbers)}"}}


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
    ("GET", "/session/{id}/report"): Case(200, _at("/session/{}/report"), World.ended_session),
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
    ("GET", "/application/{name}/tags/available"): Case(
        200, _at("/application/{}/tags/available"), World.application
    ),
    ("GET", "/warm-pool"): Case(200, _at("/warm-pool"), shows="{}s-game"),
    ("PUT", "/warm-pool/{image}/{location}"): Case(
        204, _at("/warm-pool/{}/local", json={"size": 2}), World.application
    ),
    ("DELETE", "/warm-pool/{image}/{location}"): Case(
        204, _at("/warm-pool/{}/local"), World.warm_pool
    ),
    ("GET", "/available-location/{image}"): Case(
        200, _at("/available-location/{}"), World.application
    ),
    ("GET", "/tag/{region}/{image}/{version}"): Case(
        200, _at("/tag/local/{}/v1"), World.application
    ),
    ("GET", "/region"): Case(200, _at("/region")),
    ("POST", "/token"): Case(201, _token),
    ("GET", "/operator/region"): Case(200, _at("/operator/region")),
    ("PUT", "/operator/region/{region}"): Case(204, _new("region")),
    ("DELETE", "/operator/region/{region}"): Case(204, _at("/operator/region/{}"), World.region),
    ("GET", "/operator/node-pool"): Case(200, _at("/operator/node-pool")),
    ("PUT", "/operator/node-pool/{nodePool}"): Case(204, _new("node-pool", strategy="spread")),
    ("DELETE", "/operator/node-pool/{nodePool}"): Case(
        204, _at("/operator/node-pool/{}"), World.node_pool
    ),
    ("GET", "/operator/registry"): Case(200, _at("/operator/registry")),
    ("PUT", "/operator/registry/{registry}"): Case(204, _new("registry", address="r.example")),
    ("DELETE", "/operator/registry/{registry}"): Case(
        204, _at("/operator/registry/{}"), World.registry_of
    ),
    ("GET", "/operator/placement"): Case(200, _placement, World.application_path),
    ("GET", "/operator/agent"): Case(200, _at("/operator/agent")),
    ("POST", "/operator/enrolment-token"): Case(
        201, _at("/operator/enrolment-token", json={"region": "local"})
    ),
    ("GET", "/operator/agent/{agent}"): Case(200, _at("/operator/agent/{}"), World.agent_of),
    ("DELETE", "/operator/agent/{agent}"): Case(204, _at("/operator/agent/{}"), World.agent_of),
    ("POST", "/operator/agent/{agent}/token"): Case(
        201, _at("/operator/agent/{}/token"), World.enrolled_agent_of
    ),
    ("POST", "/operator/agent/{agent}/drain"): Case(
        200, _at("/operator/agent/{}/drain", json={"deadline": "2h"}), World.agent_of
    ),
    ("DELETE", "/operator/agent/{agent}/drain"): Case(
        200, _at("/operator/agent/{}/drain"), World.agent_of
    ),
    ("POST", "/operator/agent/{agent}/revoke"): Case(
        204, _at("/operator/agent/{}/revoke"), World.enrolled_agent_of
    ),
    ("GET", "/operator/authority"): Case(200, _at("/operator/authority")),
    ("POST", "/operator/authority/rotate"): Case(200, _at("/operator/authority/rotate", json={})),
    ("POST", "/operator/authority/finish"): Case(200, _at("/operator/authority/finish", json={})),
    ("GET", "/operator/account"): Case(200, _at("/operator/account"), shows='"{}"'),
    ("POST", "/operator/account"): Case(201, _new_account),
    ("PUT", "/operator/account/{account}"): Case(
        204, _at("/operator/account/{}", json={"quota": {}}), World.account
    ),
    ("DELETE", "/operator/account/{account}"): Case(
        204, _at("/operator/account/{}"), World.account
    ),
    ("GET", "/operator/token"): Case(200, _at("/operator/token"), shows='"{}"'),
    ("POST", "/operator/token"): Case(201, _token_of, World.account),
    ("DELETE", "/operator/token/{id}"): Case(200, _at("/operator/token/{}"), World.token_id),
    ("GET", "/operator/session"): Case(200, _at("/operator/session"), shows="{}s-session-"),
    ("DELETE", "/operator/session/{account}/{id}"): Case(204, _any_session, World.session_path),
    ("GET", "/operator/audit"): Case(200, _at("/operator/audit"), shows="{}s-session-"),
    ("GET", "/healthz"): Case(200, _at("/healthz")),
    ("GET", "/readyz"): Case(200, _at("/readyz")),
    ("GET", "/openapi.json"): Case(200, _at("/openapi.json")),
    ("GET", "/openapi-3.0.json"): Case(200, _at("/openapi-3.0.json")),
    ("GET", "/docs"): Case(200, _at("/docs")),
    ("GET", "/docs/{file}"): Case(200, _at("/docs/swagger-ui.css")),
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


async def _objects(world: World, route: Route, account: str) -> list[tuple[str, int]]:
    """Return the objects to request, each with the status that a sufficient scope gets."""
    case = CASES[route.method, route.path]
    if case.make is None:
        return [("", case.status)]
    own, foreign = await case.make(world, account), await case.make(world, _other(account))
    others = case.status if _is_operators(route) else 404
    return [(foreign, others), (UNKNOWN, 404), (own, case.status)]


def _is_operators(route: Route) -> bool:
    return route.scope in OPERATOR_SCOPES


def _other(account: str) -> str:
    return ACCOUNTS[1 - ACCOUNTS.index(account)]


def _callers(route: Route) -> tuple[str, ...]:
    """The accounts that call a route; one is enough for operators, who have no account."""
    return ACCOUNTS[:1] if _is_operators(route) else ACCOUNTS


@pytest.mark.parametrize("route", SCOPED, ids=_name)
async def test_without_the_scope_a_call_is_refused_and_changes_nothing(
    world: World, route: Route
) -> None:
    assert route.scope is not None
    lacking = [scope for scope in Scope if not grants({scope}, route.scope)]
    for account in _callers(route):
        refused = {await world.token(account, scope): 403 for scope in lacking}
        refused |= {
            await world.token(account, route.scope, revoked_ms=1): 401,
            await world.token(account, route.scope, expire_ms=1): 401,
            tokens.mint().text: 401,
        }
        objects = await _objects(world, route, account)
        before = await world.written()
        for (token, status), (name, _) in itertools.product(refused.items(), objects):
            answer = await _ask(world, route, name, token)
            assert_error(answer, status)
            assert status == 401 or route.scope in answer.json["details"]
        assert await world.written() == before


@pytest.mark.parametrize("route", SCOPED, ids=_name)
async def test_the_scope_alone_reaches_the_callers_own_objects_and_no_others(
    world: World, route: Route
) -> None:
    assert route.scope is not None
    case = CASES[route.method, route.path]
    granting = [scope for scope in Scope if grants({scope}, route.scope)]
    for account, scope in itertools.product(_callers(route), granting):
        token = await world.token(account, scope)
        for name, status in await _objects(world, route, account):
            before = await world.written()
            answer = await _ask(world, route, name, token)
            assert answer.status == status, answer.text
            if status == 404:
                assert_error(answer, 404)
                assert status in route.errors
                assert await world.written() == before
            if case.shows:
                assert case.shows.format(account) in answer.text
                others = case.shows.format(_other(account)) in answer.text
                assert others == _is_operators(route)


async def test_routes_without_a_scope_need_no_token(world: World) -> None:
    for route in (route for route in ROUTES if route.scope is None):
        case = CASES[route.method, route.path]
        assert (await _ask(world, route, "", "no-token")).status == case.status
