"""A control plane in a process of its own, which is killed, and hosts that outlive it."""

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
"""An account, and a caller's id of a session."""
PATIENCE = 30.0
REPOSITORY = str(APPLICATION["repository"])


class Witness:
    """Sees every start on every host, and what runs at that moment."""

    def __init__(self) -> None:
        self.engines: list[_SeenEngine] = []
        self.most: dict[str, int] = {}
        """Sessions that an account may have."""
        self.beyond_quota: list[str] = []
        self.doubled: list[str] = []

    @property
    def running(self) -> list[Key]:
        """Whose containers run, one entry for each."""
        return [key for engine in self.engines for key in engine.running]

    def look(self) -> None:
        """Note what must not be."""
        running = self.running
        for account, count in Counter(account for account, _ in running).items():
            if count > self.most.get(account, count):
                self.beyond_quota.append(f"{account} has {count}: {sorted(running)}")
        self.doubled += [f"{n} of {key}" for key, n in Counter(running).items() if n > 1]


class _SeenEngine(FakeEngine):
    """An engine whose starts are seen, by the machine's clock, and that has every image."""

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
    """One control plane after another on the same state, and what goes on without them."""

    def __init__(
        self, folder: Path, *, hosts: int = 1, sessions_each: int = 100, **settings: Any
    ) -> None:
        """Set up hosts for `sessions_each` sessions each; `settings` are the control plane's."""
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
        # Else it sends a call again whose answer it lost, and returns the second alone.
        self.http._retry_connection = False
        self._stack.push_async_callback(self.http.close)

    async def serve(self, failpoint: str = "") -> bool:
        """Start a control plane, in place of one that runs; it kills itself at this step.

        False when it has, before it served: at its start it does what its forerunner owed.
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
        """Wait until it has ended itself by SIGKILL."""
        await eventually(lambda: self.process.process.returncode == -9)

    async def call(
        self, method: str, path: str, *, account: str = "", **more: Any
    ) -> tuple[int, Any]:
        """The status and the body of an answer, as an account, or as the operator.

        Raises:
            aiohttp.ClientError: There was none.
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
        """Make the application `game` of an account, with a tag that every host has."""
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
        """Wait until what callers see is so; the bound is for what is broken."""
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    @property
    def sessions(self) -> list[Session]:
        """What all hosts have recorded."""
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
