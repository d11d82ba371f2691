"""A control plane in its own process, to be killed, and hosts that outlive it."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, cast

import aiohttp
import grpc

from agent.domain.engine import Container
from agent.domain.session import Session
from agent.state.record import decode_label
from tests.faults.callers import assert_callers_served
from tests.faults.invariants import violations
from tests.faults.ledger import ledger
from tests.support.agent.served import CLOCK, WholeAgent
from tests.support.controlplane.fake_registry import FakeRegistry
from tests.support.controlplane.system import APPLICATION, eventually
from tests.support.fakes import FakeEngine
from tests.support.harness import AgentSpec, ControlPlaneProcess
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

Key = tuple[str, str]
"""An account, and a session id of the caller."""
PATIENCE = 30.0
REPOSITORY = str(APPLICATION["repository"])


class Witness:
    """Checks all running sessions at every start on every host."""

    def __init__(self) -> None:
        self.engines: list[_SeenEngine] = []
        self.most: dict[str, int] = {}
        """The session quota by account."""
        self.beyond_quota: list[str] = []
        self.doubled: list[str] = []

    @property
    def running(self) -> list[Key]:
        """The session key of each running container."""
        return [key for engine in self.engines for key in engine.running]

    def look(self) -> None:
        """Record violations."""
        running = self.running
        for account, count in Counter(account for account, _ in running).items():
            if count > self.most.get(account, count):
                self.beyond_quota.append(f"{account} has {count}: {sorted(running)}")
        self.doubled += [f"{n} of {key}" for key, n in Counter(running).items() if n > 1]


class _SeenEngine(FakeEngine):
    """An engine with every image that reports its starts, on the machine's clock."""

    def __init__(self, witness: Witness) -> None:
        super().__init__(cast("Any", CLOCK))
        self._witness = witness
        witness.engines.append(self)

    @property
    def running(self) -> list[Key]:
        held = [each for each in self.all if each.process is not None]
        identities = [decode_label(each.spec.labels).spec.identity for each in held]
        return [(each.account, each.session_id) for each in identities]

    async def start(self, container: str) -> Container:
        started = await super().start(container)
        self._witness.look()
        return started


class _ControlPlane(ControlPlaneProcess):
    ACCOUNTS = ("default", "other", "third")


class Outlived:
    """Successive control planes on one state, and the hosts that outlive them."""

    def __init__(
        self, folder: Path, *, hosts: int = 1, sessions_each: int = 100, **settings: Any
    ) -> None:
        """Create hosts for `sessions_each` sessions each; `settings`: of the control plane."""
        self.witness = Witness()
        self.registry = FakeRegistry()
        self.hosts = [
            WholeAgent(
                folder,
                f"h{number}",
                engine=_SeenEngine(self.witness),
                max_sessions=sessions_each,
            )
            for number in range(hosts)
        ]
        self._settings = settings
        self._stack = AsyncExitStack()
        self.process: ControlPlaneProcess
        self.http: aiohttp.ClientSession

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
        self._stack.push_async_callback(self.registry.stop)
        await self.registry.start()
        for host in self.hosts:
            self._stack.push_async_callback(host.stop)
            host.have_every_image()
            await host.start()
        agents = [AgentSpec(host.name, host.address) for host in self.hosts]
        self.process = _ControlPlane(agents, {"local": self.registry.address}, **self._settings)
        self._stack.push_async_callback(asyncio.to_thread, self.process.__exit__, None, None, None)
        await asyncio.to_thread(self.process.start)
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        # Otherwise it resends a call after a lost answer, and returns only the second.
        self.http._retry_connection = False
        self._stack.push_async_callback(self.http.close)

    async def serve(self, failpoint: str = "") -> bool:
        """Start or replace the control plane; it kills itself at this step.

        False if it did so while it resumed the work of its predecessor, before it served.
        """
        self.process.settings["failpoint"] = failpoint
        await asyncio.to_thread(self.process.kill)
        try:
            await asyncio.to_thread(self.process.start)
        except RuntimeError as error:
            if not failpoint or "ended with -9" not in str(error):
                raise
            return False
        return True

    async def killed(self) -> None:
        """Wait until it has killed itself by SIGKILL."""
        await eventually(lambda: self.process.process.returncode == -9)

    async def call(
        self, method: str, path: str, *, account: str = "", **more: Any
    ) -> tuple[int, Any]:
        """Return the status and body of an answer to an account, or to the operator.

        Raises:
            aiohttp.ClientError: There was no answer.
        """
        token = self.process.tokens[account] if account else self.process.operator_token
        headers = {"Authorization": f"Bearer {token}"}
        url = self.process.base_url + path
        async with self.http.request(method, url, headers=headers, **more) as response:
            body = await response.read()
            status = response.status
        if (method, path, status) == ("POST", "/session", 201):
            self.process.made[account].append(json.loads(body)["id"])
        return status, json.loads(body) if body else None

    async def make_game(self, account: str) -> None:
        """Create the application `game` of an account, with a tag that every host has."""
        self.registry.push(REPOSITORY, "v1")
        small = {"reservation": {"cpu": 0.1, "ram": 64}, "limits": {"cpu": 1, "ram": 64}}
        body = APPLICATION | small
        assert (await self.call("POST", "/application", account=account, json=body))[0] == 201
        await self.enable("v1", account)

    async def enable(self, tag: str, account: str) -> None:
        """Enable a tag of the application `game`, and wait until a host has it."""
        path = "/application/game/tags"
        status, answer = await self.call("POST", path, account=account, json={"tag": tag})
        assert status == 204, answer
        await self.holds(lambda: self.is_pulled(tag, account))

    async def is_pulled(self, tag: str, account: str) -> bool:
        """Return whether a host has a tag of the application `game`."""
        status, answer = await self.call("GET", f"/tag/local/game/{tag}", account=account)
        return status == 200 and bool(answer["exists"])

    async def holds(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition that callers see; the limit is for failures."""
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    @property
    def sessions(self) -> list[Session]:
        """The recorded sessions of all hosts."""
        return [session for host in self.hosts for session in host.sessions]

    async def _assert_survived(self) -> None:
        if not self.process.process.is_running:
            await self.serve()
        for host in self.hosts:
            deadline, wrong = time.monotonic() + PATIENCE, ["not looked at"]
            while wrong and time.monotonic() < deadline:
                wrong = violations(host.observed(await _free_ports(host)))
                await asyncio.sleep(0.02)
            assert not wrong, wrong
        assert not self.witness.doubled, self.witness.doubled
        assert not self.witness.beyond_quota, self.witness.beyond_quota
        await asyncio.to_thread(assert_callers_served, self.process, self.sessions)
        ledger.checked = True


async def _free_ports(host: WholeAgent) -> int:
    async with grpc.aio.insecure_channel(host.address) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)
        answer = await stub.GetHost(pb.GetHostRequest(), timeout=PATIENCE)
    return int(answer.host.free_tcp_ports + answer.host.free_udp_ports)
