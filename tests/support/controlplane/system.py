"""A control plane over real HTTP, with fake agents and a fake registry."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp

from controlplane.app.control_plane import ControlPlane
from controlplane.fleet.host.host import Host
from controlplane.settings.model import AgentConfig, Config
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.sqlite import SqliteDatabase
from tests.faults.ledger import ledger
from tests.support.controlplane.background import is_at_rest
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.fake_registry import FakeRegistry
from tests.support.controlplane.initial_states import initialise
from tests.support.fake_clock import AheadClock
from tests.support.hold import Hold
from tests.support.tasks import ended
from tiltyard.runtime.clock import Clock

PATIENCE = 60.0  # Seconds, many times what a busy machine needs
APPLICATION: dict[str, Any] = {
    "name": "game",
    "registry": "local",
    "repository": "studio/game",
    "tagKeep": 5,
    "networkMode": "bridge",
    "limits": {"cpu": 1, "ram": 256},
    "reservation": {"cpu": 1, "ram": 256},
    "nodePool": "default",
    "regions": ["local"],
    "ports": [
        {"requested": 7777, "protocol": "udp", "tls": False},
        {"requested": 7778, "protocol": "tcp", "tls": False},
    ],
}


async def eventually(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait until a condition holds; checks take at most half of the loop's time."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while True:
            began = loop.time()
            holds = condition()
            if not isinstance(holds, bool):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(max(0.005, loop.time() - began))


async def eventually_equals(read: Callable[[], Awaitable[object]], expected: object) -> None:
    """Wait until what is read equals this; AssertionError with what was read at last."""
    found: object = None

    async def equals() -> bool:
        nonlocal found
        found = await read()
        return found == expected

    try:
        await eventually(equals)
    except TimeoutError:
        raise AssertionError(f"{found!r} instead of {expected!r}") from None


class Parts:
    """Parts that start together; all end with the context, or if one fails to start."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start_parts()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and ledger.wants_checks:
                await self._assert_survived()
        finally:
            await self._stack.aclose()

    async def _start_parts(self) -> None:
        """Start each, with its end in `_stack`."""
        raise NotImplementedError

    async def _assert_survived(self) -> None:
        """Check the invariants after a fault, and note that in the ledger."""


class System(Parts):
    """A control plane, its agents, its registry and a caller with tokens.

    With `in_order`, packing tries the hosts in their order.
    """

    def __init__(
        self, folder: Path, *, agents: int = 1, in_order: bool = False, **settings: Any
    ) -> None:
        super().__init__()
        self.folder = folder
        self.settings = settings
        self.clock: Clock = AheadClock()
        self.parts: dict[str, Any] = {}  # Other arguments of the control plane
        self.agents = [FakeAgent(folder, f"a{number}") for number in range(agents)]
        if in_order:
            self.prefer(*self.agents)
        self.places: dict[str, tuple[str, str]] = {}
        """The region and node pool of agents, by name; by default `local` and `default`."""
        self.registry = FakeRegistry()
        self.registries: list[RegistryConfig] = []  # Declared beside that one
        self.tokens: dict[str, str] = {}
        self.operator_token = ""
        self.control_plane: ControlPlane
        self.http: aiohttp.ClientSession
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def prefer(self, *agents: FakeAgent) -> None:
        """Make packing try these hosts first, in this order. Call it before entering."""
        for rank, agent in enumerate(reversed(agents), start=1):
            agent.host.reserved.nano_cpus = rank * 10**10

    @property
    def agent(self) -> FakeAgent:
        return self.agents[0]

    @property
    def operator_id(self) -> str:
        """The id of the operator's token."""
        return token_id(self.operator_token)

    @property
    def config(self) -> Config:
        return Config(
            state_dir=self.folder / "state",
            registries=(
                RegistryConfig(name="local", address=self.registry.address),
                *self.registries,
            ),
            agents=tuple(self._declared(agent) for agent in self.agents),
            **{
                "api_listen": "127.0.0.1:0",
                "regions": ("local", "elsewhere"),
                "enrol_listen": "",
                "metrics_listen": "",
                "latency_interval": 0.0,  # the agents have no such addresses
                "start_timeout": 20.0,  # less than `unreachable_after`; a claim has a quarter
                **self.settings,
            },
        )

    def _declared(self, agent: FakeAgent) -> AgentConfig:
        region, node_pool = self.places.get(agent.name, ("local", "default"))
        return AgentConfig(
            name=agent.name, address=agent.address, region=region, node_pool=node_pool
        )

    async def _start_parts(self) -> None:
        self.http = await self._stack.enter_async_context(aiohttp.ClientSession())
        parts: list[FakeRegistry | FakeAgent] = [self.registry, *self.agents]
        for part in parts:
            self._stack.push_async_callback(part.stop)
            await part.start()
        tokens = await initialise(self.config)
        self.tokens = tokens.accounts
        self.operator_token = tokens.operator_token or ""
        self._stack.push_async_callback(self.stop_serving)
        await self.serve()

    def make_control_plane(self) -> ControlPlane:
        """Create the control plane that `serve` runs."""
        return ControlPlane(self.config, self.clock, **self.parts)

    async def serve(self) -> None:
        """Start the control plane and wait until it is ready."""
        self._stopping = asyncio.Event()
        self.control_plane = self.make_control_plane()
        self._serving = asyncio.create_task(self.control_plane.serve(self._stopping))
        listening = asyncio.create_task(self.control_plane.listening.wait())
        await asyncio.wait({self._serving, listening}, return_when="FIRST_COMPLETED")
        if self._serving.done():
            listening.cancel()
            await self._serving
        await eventually(lambda: is_at_rest(self.control_plane))

    async def stop_serving(self) -> None:
        """Stop the control plane as SIGTERM does."""
        self._stopping.set()
        if self._serving is not None:
            await ended(self._serving, PATIENCE)
            self._serving = None

    async def restart(self) -> None:
        """Stop the control plane and start another one on the same state."""
        await self.stop_serving()
        await self.serve()

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        account: str = "alice",
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Send a request, with the operator's token to operator paths; read the whole answer."""
        own = self.operator_token if path.startswith("/operator/") else self.tokens[account]
        sent = {"Authorization": f"Bearer {token or own}", **(headers or {})}
        url = self.control_plane.base_url + path
        async with self.http.request(method, url, headers=sent, **more) as response:
            return Answer(response, await response.read())

    async def read(self, path: str, **more: Any) -> Any:
        """GET a path that can be read; return the JSON."""
        return (await self.call("GET", path, **more)).expect(200).json

    async def limit(self, **quota: float) -> None:
        """Give alice this quota."""
        (await self.call("PUT", "/operator/account/alice", json={"quota": quota})).expect(204)

    @property
    def port(self) -> int:
        """The port of the API."""
        return int(self.control_plane.base_url.rpartition(":")[2])

    async def make_application(
        self, tag: str | None = "v1", account: str = "alice", **changes: Any
    ) -> str:
        """Create an application with a tag that every agent has pulled; return the image."""
        body = APPLICATION | changes
        (await self.call("POST", "/application", account=account, json=body)).expect(201)
        return await self.enable(tag, body["name"], body["repository"], account) if tag else ""

    async def edit(self, name: str = "game", account: str = "alice", **changes: Any) -> Answer:
        """PUT /application/{name}."""
        return await self.call("PUT", f"/application/{name}", account=account, json=changes)

    async def locations(self) -> list[str]:
        """Return the regions in which the application `game` can be started."""
        found = await self.read("/available-location/game")
        return [location["id"] for location in found["locations"]]

    async def enable(
        self,
        tag: str,
        name: str = "game",
        repository: str = "studio/game",
        account: str = "alice",
        *,
        pulled_by: Sequence[FakeAgent] | None = None,
    ) -> str:
        """Push and enable a tag, wait until agents, by default all, have pulled it."""
        image = f"{self.registry.address}/{repository}@{self.registry.push(repository, tag)}"
        (await self.enable_tag(tag, name, account)).expect(204)
        pulling = self.agents if pulled_by is None else pulled_by
        await eventually(lambda: all(self.has(agent.name, image) for agent in pulling))
        await eventually(lambda: is_at_rest(self.control_plane))
        return image

    async def enable_tag(
        self, tag: str = "v1", name: str = "game", account: str = "alice"
    ) -> Answer:
        """POST /application/{name}/tags."""
        path = f"/application/{name}/tags"
        return await self.call("POST", path, account=account, json={"tag": tag})

    def link(self, agent: str = "a0") -> Host:
        """Return what the control plane knows of an agent."""
        link = self.control_plane.fleet.host(agent)
        assert link is not None
        return link

    async def has_reported(self, agent: str, **values: object) -> None:
        """Wait until the newest report of an agent's host has these values."""

        def holds() -> bool:
            report = self.link(agent).state.report
            return report is not None and all(getattr(report, n) == v for n, v in values.items())

        await eventually(holds)

    async def catches_up(self) -> None:
        """Wait until every change of the agents, of their hosts and sessions, is known."""
        await eventually(
            lambda: all(self.link(a.name).state.sequence == a.sequence for a in self.agents)
        )

    def has(self, agent: str, image: str) -> bool:
        """Return whether the control plane knows that an agent has an image."""
        link = self.control_plane.fleet.host(agent)
        return (
            link is not None
            and link.state.report is not None
            and image in link.state.report.images
        )

    async def add_agent(self, name: str) -> None:
        """Add an undeclared agent that never reports."""
        await self.rows(
            "INSERT INTO agent(name, address, region, node_pool) VALUES (?,?,'local','default')",
            name,
            f"unix:{self.folder}/{name}",
        )
        await self.control_plane.fleet.caught_up()

    async def start(self, *, account: Any = "alice", headers: Any = None, **fields: Any) -> Answer:
        """POST /session of the application `game`."""
        body = {"location": "local", "image": "game"} | fields
        return await self.call("POST", "/session", account=account, headers=headers, json=body)

    async def held_start(
        self, at: str = "before_start", agent: FakeAgent | None = None, **fields: Any
    ) -> tuple[asyncio.Task[Answer], Hold]:
        """Begin a start; return it with the script of an agent, by default the first, it is at."""
        hold = Hold()
        setattr(agent or self.agent, at, hold)
        start = asyncio.create_task(self.start(**fields), name="start")
        await hold.reached.wait()
        return start, hold

    async def join(self, *players: str, session: str = "m", **more: Any) -> Answer:
        """PUT /session/player/join."""
        body = {"session": session, "players": players}
        return await self.call("PUT", "/session/player/join", json=body, **more)

    async def leave(self, *players: str, **fields: Any) -> Answer:
        """DELETE /session/player/leave."""
        body = {"players": players} | fields
        return await self.call("DELETE", "/session/player/leave", json=body)

    async def make_token(self, token: str | None = None, **fields: Any) -> str:
        """POST /token; return the new token."""
        answer = (await self.call("POST", "/token", token=token, json=fields)).expect(201)
        assert answer.headers["Cache-Control"] == "no-store"
        return str(answer.json["token"])

    async def status_of(self, session_id: str) -> str:
        """Read a session's status; "" if there is no such session."""
        answer = await self.call("GET", f"/session/{session_id}")
        return str(answer.json["status"]) if answer.status == 200 else ""

    async def until(self, path: str, holds: Callable[[Any], bool]) -> None:
        """Wait until the answer to GET `path` is so."""

        async def now() -> bool:
            return holds((await self.call("GET", path)).json)

        await eventually(now)

    async def becomes(self, session_id: str, status: str) -> None:
        """Wait until a session has a status."""
        await eventually_equals(lambda: self.status_of(session_id), status)

    async def reaches(self, agent: str, state: str) -> None:
        """Wait until operators see an agent in a state."""
        await self.until(f"/operator/agent/{agent}", lambda shown: shown["state"] == state)

    async def until_answered(self, method: str, path: str, status: int) -> None:
        """Repeat a request until it is answered with a status."""

        async def answered() -> int:
            return (await self.call(method, path)).status

        await eventually_equals(answered, status)

    async def is_confirmed(self, session_id: str) -> bool:
        """Return whether the host's answer to the start of a session is written."""
        return await self.rows("SELECT confirmed FROM session WHERE id=?", session_id) == [(1,)]

    async def rows(self, sql: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        """Execute a statement through the store; like another process, note no single change."""
        found = await self.unnoticed(sql, *values, **named)
        if not sql.startswith("SELECT"):
            self.control_plane.store.changes.publish(Change(topic) for topic in Topic)
        return found

    async def unnoticed(self, sql: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        """Execute a statement through the store, and publish no change."""

        def transaction(db: Database) -> list[tuple[Any, ...]]:
            assert isinstance(db, SqliteDatabase)
            return db.connection.execute(sql, named or values).fetchall()

        return await self.control_plane.store.run(transaction)

    async def events(self, kind: str, columns: str) -> list[tuple[Any, ...]]:
        """Read columns of the audit events of a kind, which may have wildcards."""
        sql = f"SELECT {columns} FROM event WHERE kind LIKE ? ORDER BY sequence"
        return await self.rows(sql, kind)

    async def nothing_is_left(self) -> None:
        """Wait until no session row, reservation or unresolved attempt is left."""

        async def holds() -> bool:
            live = await self.rows("SELECT 1 FROM session WHERE ended_ms IS NULL")
            owed = await self.rows("SELECT 1 FROM stop_order WHERE confirmed_ms IS NULL")
            held = sum(link.state.in_flight for link in self.control_plane.fleet.hosts)
            return not live and not owed and not held and not any(a.live for a in self.agents)

        await eventually(holds)


class Answer:
    """A complete answer."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.path = response.request_info.url.raw_path
        self.body = body

    def expect(self, status: int) -> Self:
        """Return this answer if it has this status, else raise AssertionError with its text."""
        assert self.status == status, self.text
        return self

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def token_id(token: str) -> str:
    """Return the id in the text of a token."""
    return token.split("_")[1]


_CODES = {
    **dict.fromkeys((400, 422, 431), ("INVALID_REQUEST",)),
    401: ("UNAUTHORIZED",),
    402: ("QUOTA_EXCEEDED",),
    403: ("FORBIDDEN",),
    404: ("RESOURCE_NOT_FOUND",),
    405: ("METHOD_NOT_ALLOWED",),
    409: ("CONFLICT",),
    410: ("EVENTS_GONE",),
    416: ("OFFSET_BEYOND_END",),
    413: ("PAYLOAD_TOO_LARGE",),
    420: ("CAPACITY_UNAVAILABLE", "HOSTS_UNRESPONSIVE"),
    429: ("TOO_MANY_STREAMS",),
    500: ("INTERNAL_ERROR",),
    503: ("SERVICE_UNAVAILABLE",),
    504: ("GATEWAY_TIMEOUT",),
}


def assert_error_form(body: Any, status: int) -> None:
    """Check that a body is an ErrorResponse of `status`."""
    required = {"statusCode", "code", "message", "details", "path", "timestamp", "identifier"}
    assert required <= set(body) <= required | {"violations", "violationCount", "oldest", "resume"}
    assert body["statusCode"] == status
    assert body["code"] in _CODES[status]
    assert body["message"]
    assert body["details"]
    assert body["timestamp"].endswith("Z")


def assert_error(
    answer: Answer, status: int, *fields: str, details: str = "", whole: str | None = None
) -> Answer:
    """Check that an answer is an ErrorResponse of `status` with violations of exactly `fields`.

    Its details contain `details` and, if given, equal `whole`. Returns the answer.
    """
    assert answer.status == status, answer.text
    body = answer.json
    assert_error_form(body, status)
    assert body["path"] == answer.path
    assert str(uuid.UUID(body["identifier"])) == answer.headers["X-Request-Id"]
    assert "Server" not in answer.headers
    assert details in body["details"]
    assert whole in (None, body["details"]), body["details"]
    if fields:
        assert [violation["field"] for violation in body["violations"]] == list(fields)
        assert all(violation["description"] for violation in body["violations"])
    return answer
