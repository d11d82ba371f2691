"""Access matrix: every route with each scope, own and foreign objects, both accounts.

Generated from the route table. A route without a case here fails `test_every_route_has_a_case`.
"""

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.operations.operation import Route
from controlplane.api.routes import ROUTES
from controlplane.domain.access import tokens
from controlplane.domain.access.tokens import OPERATOR_SCOPES, Scope, grants
from controlplane.storage.tables.access.tokens import insert_token
from tests.support.controlplane.system import (
    APPLICATION,
    Answer,
    System,
    assert_error,
    eventually,
    eventually_equals,
    token_id,
)

ACCOUNTS = ("alice", "bob")
UNKNOWN = "unknown"
_numbers = itertools.count()


AGENT = (
    "name, region, node_pool, removed_ms, id, certificate_serial, revoked_ms, draining,"
    " drain_deadline_ms"
)
POOL = "id, revision, size, enabled, env, args, labels, claim_signal"
"""The columns of a host, and of a warm pool, that callers change."""


class World(System):
    """Each account has an application with a pulled tag, a warm pool and a session.

    Operators' tokens belong to no account and may access every account's objects.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, webhook_networks=("127.0.0.0/8",), **settings)

    async def fill(self) -> None:
        for account in ACCOUNTS:
            await self.make_application(account=account, name=f"{account}s-game")
            await self.warm_pool(account)
            await self.session(account)
            await self.webhook(account)

    async def token(self, account: str, scope: Scope, **changes: int) -> str:
        """Create a token with one scope, bypassing delegation.

        It is the account's, or an operator's if the scope is one of theirs.
        """
        token = tokens.mint()
        owner = None if scope in OPERATOR_SCOPES else account
        await self.control_plane.store.run(
            lambda db: insert_token(db, owner, token, {scope}, now=0)
        )
        for column, value in changes.items():
            await self.rows(f"UPDATE token SET {column}=? WHERE id=?", value, token.token_id)
        return token.text

    async def application(self, account: str) -> str:
        return f"{account}s-game"

    async def warm_pool(self, account: str) -> str:
        """Set a pool; the application has its name."""
        name = await self.application(account)
        path = f"/warm-pool/{name}/local"
        (await self.call("PUT", path, account=account, json={"size": 1})).expect(204)
        return name

    async def session(self, account: str) -> str:
        name = f"{account}s-session-{next(_numbers)}"
        started = await self.start(account=account, image=f"{account}s-game", id=name)
        assert started.status == 201, started.text
        await eventually(lambda: self.is_confirmed(name))
        return name

    async def ended_session(self, account: str) -> str:
        name = await self.session(account)
        (await self.call("DELETE", f"/session/{name}", account=account)).expect(204)
        return name

    async def application_query(self, account: str) -> str:
        return f"account={account}&image={await self.application(account)}"

    async def session_path(self, account: str) -> str:
        return f"{account}/{await self.session(account)}"

    async def webhook(self, account: str) -> str:
        """Make a webhook, for which nothing happens."""
        body = WEBHOOK | {"description": f"{account}s-webhook"}
        made = await self.call("POST", "/webhook", account=account, json=body)
        return str(made.expect(201).json["id"])

    async def account(self, account: str) -> str:
        """Make an account that can be removed."""
        body = {"name": f"{account}s-account-{next(_numbers)}"}
        (await self.call("POST", "/operator/account", json=body)).expect(201)
        return body["name"]

    async def token_id(self, account: str) -> str:
        return token_id(await self.token(account, Scope.LOGS_READ))

    async def agent_of(self, account: str) -> str:
        name = f"{account}s-agent-{next(_numbers)}"
        await self.add_agent(name)
        return name

    async def enrolled_agent_of(self, account: str) -> str:
        name = await self.agent_of(account)
        await self.rows("UPDATE agent SET id=name WHERE name=?", name)
        return name

    async def written(self) -> list[list[tuple[Any, ...]]]:
        """Read everything that callers can change, except the last use of tokens.

        Claims are confirmed first, which takes place after their answers. What the control plane
        and hosts record by themselves is left out: it takes place at any time.
        """
        await eventually_equals(
            lambda: self.rows("SELECT id FROM session WHERE confirmed = 0"), []
        )
        tables = (
            "account",
            "session",
            "player",
            "application",
            "tag",
            "region",
            "node_pool",
            "registry",
            "webhook",
            "enrolment_token",
        )
        found = [await self.rows(f"SELECT * FROM {table}") for table in tables]
        return [
            *found,
            await self.rows(f"SELECT {AGENT} FROM agent"),
            await self.rows(
                "SELECT id, revision, size, enabled, env, args, labels FROM warm_pool"
            ),
            await self.rows("SELECT * FROM event WHERE actor_kind <> 'controlplane'"),
            await self.rows("SELECT id, name, revoked_ms FROM token"),
        ]


Make = Callable[[World, str], Awaitable[str]]


def made(kind: str) -> Make:
    """Make an object of operators that can be removed."""

    async def make(world: World, account: str) -> str:
        name = f"{account}s-{kind}-{next(_numbers)}"
        body = {"node-pool": {}, "registry": {"address": f"{name}.example"}}.get(kind)
        (await world.call("PUT", f"/operator/{kind}/{name}", json=body)).expect(204)
        return name

    return make


@dataclass(frozen=True)
class Case:
    """A route's request about an object; `make` creates one of an account.

    `NAME` in the body or path, and any parameter in the route's path, is the object's name; `NEW`
    is a name never used. Without `make` the route works on the caller's account; `shows` is what
    a list must contain of the account and must not contain of the other, unless the route is an
    operator's.
    """

    make: Make | None = None
    body: Any = None
    path: str = ""
    shows: str = ""


NAME = "{name}"
NEW = "{new}"
WEBHOOK = {"url": "https://127.0.0.1:9/", "kinds": ["webhook.gap"]}
PLAYERS = {"session": NAME, "players": ["p"]}
CASES: dict[tuple[str, str], Case] = {
    ("POST", "/session"): Case(World.application, {"location": "local", "image": NAME}),
    ("GET", "/session"): Case(path="/session?all=1", shows="{}s-session-"),
    ("GET", "/session/{id}"): Case(World.session),
    ("DELETE", "/session/{id}"): Case(World.session),
    ("GET", "/session/{id}/report"): Case(World.ended_session),
    ("PUT", "/session/player/join"): Case(World.session, PLAYERS),
    ("POST", "/session/player/join"): Case(World.session, PLAYERS),
    ("DELETE", "/session/player/leave"): Case(World.session, PLAYERS),
    ("POST", "/session/player/leave"): Case(World.session, PLAYERS),
    ("GET", "/logs"): Case(World.session, path="/logs?id={name}"),
    ("GET", "/event"): Case(shows="{}s-session-"),
    ("GET", "/artifacts"): Case(World.ended_session, path="/artifacts?session={name}&path=/data"),
    ("POST", "/application"): Case(body=APPLICATION | {"name": NEW}),
    ("GET", "/application"): Case(shows="{}s-game"),
    ("PUT", "/application/{name}"): Case(World.application, {"tagKeep": 9}),
    ("POST", "/application/{name}/tags"): Case(World.application, {"tag": "v1"}),
    ("GET", "/application/{name}/tags/available"): Case(World.application),
    ("GET", "/warm-pool"): Case(shows="{}s-game"),
    ("PUT", "/warm-pool/{image}/{location}"): Case(
        World.application, {"size": 2}, "/warm-pool/{name}/local"
    ),
    ("DELETE", "/warm-pool/{image}/{location}"): Case(
        World.warm_pool, path="/warm-pool/{name}/local"
    ),
    ("GET", "/available-location/{image}"): Case(World.application),
    ("GET", "/tag/{region}/{image}/{version}"): Case(
        World.application, path="/tag/local/{name}/v1"
    ),
    ("GET", "/region"): Case(),
    ("POST", "/webhook"): Case(body=WEBHOOK),
    ("GET", "/webhook"): Case(shows="{}s-webhook"),
    ("GET", "/webhook/{id}"): Case(World.webhook),
    ("PUT", "/webhook/{id}"): Case(World.webhook, WEBHOOK | {"ordered": False}),
    ("DELETE", "/webhook/{id}"): Case(World.webhook),
    ("GET", "/webhook/{id}/delivery"): Case(World.webhook),
    ("POST", "/webhook/{id}/test"): Case(World.webhook),
    ("POST", "/webhook/{id}/replay"): Case(World.webhook, {"event": "1-1"}),
    ("POST", "/webhook/{id}/secret"): Case(World.webhook),
    ("POST", "/token"): Case(body={"name": NEW, "scopes": []}),
    ("GET", "/operator/region"): Case(),
    ("PUT", "/operator/region/{region}"): Case(path="/operator/region/{new}"),
    ("DELETE", "/operator/region/{region}"): Case(made("region")),
    ("GET", "/operator/node-pool"): Case(),
    ("PUT", "/operator/node-pool/{nodePool}"): Case(
        body={"strategy": "spread"}, path="/operator/node-pool/{new}"
    ),
    ("DELETE", "/operator/node-pool/{nodePool}"): Case(made("node-pool")),
    ("GET", "/operator/registry"): Case(),
    ("PUT", "/operator/registry/{registry}"): Case(
        body={"address": "r.example"}, path="/operator/registry/{new}"
    ),
    ("DELETE", "/operator/registry/{registry}"): Case(made("registry")),
    ("GET", "/operator/placement"): Case(
        World.application_query, path="/operator/placement?location=local&{name}"
    ),
    ("GET", "/operator/agent"): Case(),
    ("POST", "/operator/enrolment-token"): Case(body={"region": "local"}),
    ("GET", "/operator/agent/{agent}"): Case(World.agent_of),
    ("DELETE", "/operator/agent/{agent}"): Case(World.agent_of),
    ("POST", "/operator/agent/{agent}/token"): Case(World.enrolled_agent_of),
    ("POST", "/operator/agent/{agent}/drain"): Case(World.agent_of, {"deadline": "2h"}),
    ("DELETE", "/operator/agent/{agent}/drain"): Case(World.agent_of),
    ("GET", "/operator/agent/{agent}/exposure"): Case(World.agent_of),
    ("POST", "/operator/agent/{agent}/revoke"): Case(World.enrolled_agent_of),
    ("GET", "/operator/authority"): Case(),
    ("POST", "/operator/authority/rotate"): Case(body={}),
    ("POST", "/operator/authority/finish"): Case(body={"force": True}),
    ("GET", "/operator/account"): Case(shows='"{}"'),
    ("POST", "/operator/account"): Case(body={"name": NEW}),
    ("PUT", "/operator/account/{account}"): Case(World.account, {"quota": {}}),
    ("DELETE", "/operator/account/{account}"): Case(World.account),
    ("GET", "/operator/token"): Case(shows='"{}"'),
    ("POST", "/operator/token"): Case(World.account, {"account": NAME, "name": NEW, "scopes": []}),
    ("DELETE", "/operator/token/{id}"): Case(World.token_id),
    ("GET", "/operator/session"): Case(shows="{}s-session-"),
    ("DELETE", "/operator/session/{account}/{id}"): Case(
        World.session_path, path="/operator/session/{name}"
    ),
    ("GET", "/operator/event"): Case(path="/operator/event?limit=1000", shows="{}s-session-"),
    ("GET", "/operator/webhook"): Case(shows='"{}"'),
    ("GET", "/operator/audit"): Case(shows="{}s-session-"),
    ("GET", "/healthz"): Case(),
    ("GET", "/readyz"): Case(),
    ("GET", "/openapi.json"): Case(),
    ("GET", "/docs"): Case(),
    ("GET", "/docs/{file}"): Case(path="/docs/swagger-ui.css"),
}
SCOPED = [route for route in ROUTES if route.scope is not None]


def _area(route: Route) -> str:
    first = route.path.split("/")[1]
    return first if first in {"application", "operator", "session", "webhook"} else "others"


AREAS = sorted({_area(route) for route in SCOPED})
in_areas = pytest.mark.parametrize("area", AREAS)
"""The routes of an area share a control plane, since its start takes longer than most of them."""


def _routes(area: str) -> list[Route]:
    return [route for route in SCOPED if _area(route) == area]


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_route_has_a_case() -> None:
    assert list(CASES) == [(route.method, route.path) for route in ROUTES]


pytestmark = pytest.mark.system(kind=World)


@pytest.fixture
async def world(system: World) -> World:
    await system.fill()
    return system


async def ask(world: World, route: Route, name: str, token: str | None, **more: Any) -> Answer:
    """Call a route about an object, with the body of its case unless another is given."""
    case = CASES[route.method, route.path]
    new = f"made-{next(_numbers)}"

    def filled(text: str) -> str:
        return text.replace(NAME, name).replace(NEW, new)

    path = filled(case.path or re.sub(r"\{\w+\}", NAME, route.path))
    if case.body is not None:
        more = {"json": json.loads(filled(json.dumps(case.body)))} | more
    return await world.call(route.method, path, token=token, **more)


async def _objects(world: World, route: Route, account: str) -> list[tuple[str, int]]:
    """Return the objects to request, each with the status that a sufficient scope gets."""
    make = CASES[route.method, route.path].make
    good = route.handler.status
    if make is None:
        return [("", good)]
    own = await make(world, account)
    foreign = await make(world, _other(account))
    unknown = re.sub(r"[\w-]+$", UNKNOWN, own)
    return [(foreign, good if _is_operators(route) else 404), (unknown, 404), (own, good)]


def _is_operators(route: Route) -> bool:
    return route.scope in OPERATOR_SCOPES


def _other(account: str) -> str:
    return ACCOUNTS[1 - ACCOUNTS.index(account)]


def _callers(route: Route) -> tuple[str, ...]:
    """The accounts that call a route; one is enough for operators, who have no account."""
    return ACCOUNTS[:1] if _is_operators(route) else ACCOUNTS


@contextmanager
def naming(route: Route, account: str) -> Iterator[None]:
    """Say which call has failed."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{_name(route)} as {account}: {error}") from error


@in_areas
async def test_without_the_scope_a_call_is_refused_and_changes_nothing(
    world: World, area: str
) -> None:
    for route in _routes(area):
        for account in _callers(route):
            with naming(route, account):
                await _is_refused_without_the_scope(world, route, account)


async def _is_refused_without_the_scope(world: World, route: Route, account: str) -> None:
    assert route.scope is not None
    lacking = [scope for scope in Scope if not grants({scope}, route.scope)]
    refused = {await world.token(account, scope): 403 for scope in lacking}
    refused |= {
        await world.token(account, route.scope, revoked_ms=1): 401,
        await world.token(account, route.scope, expire_ms=1): 401,
        tokens.mint().text: 401,
    }
    objects = await _objects(world, route, account)
    before = await world.written()
    for (token, status), (name, _) in itertools.product(refused.items(), objects):
        answer = assert_error(await ask(world, route, name, token), status)
        assert status == 401 or route.scope in answer.json["details"]
    assert await world.written() == before


@in_areas
async def test_the_scope_alone_reaches_the_callers_own_objects_and_no_others(
    world: World, area: str
) -> None:
    for route in _routes(area):
        for account, scope in itertools.product(_callers(route), _granting(route)):
            with naming(route, account):
                await _reaches_its_own(world, route, account, scope=scope)


def _granting(route: Route) -> list[Scope]:
    assert route.scope is not None
    return [scope for scope in Scope if grants({scope}, route.scope)]


async def _reaches_its_own(world: World, route: Route, account: str, *, scope: Scope) -> None:
    case = CASES[route.method, route.path]
    token = await world.token(account, scope)
    for name, status in await _objects(world, route, account):
        before = await world.written()
        answer = (await ask(world, route, name, token)).expect(status)
        if status == 404:
            assert_error(answer, 404)
            assert status in route.errors
            assert await world.written() == before
        if case.shows:
            assert case.shows.format(account) in answer.text
            assert (case.shows.format(_other(account)) in answer.text) == _is_operators(route)


async def test_routes_without_a_scope_need_no_token(world: World) -> None:
    for route in (route for route in ROUTES if route.scope is None):
        assert (await ask(world, route, "", "no-token")).status == route.handler.status
