"""A control plane in its own process, to be killed, and hosts that outlive it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast

import grpc

from agent.domain.containers.engine import Container, Start
from agent.domain.sessions.session import Session
from agent.state.encoding import decode_label
from tests.faults.callers import assert_callers_served
from tests.faults.invariants import OF_A_HOST, violations
from tests.faults.ledger import ledger
from tests.support.agent.served import CLOCK, WholeAgent
from tests.support.controlplane.fake_registry import FakeRegistry
from tests.support.controlplane.system import (
    APPLICATION,
    PATIENCE,
    Parts,
    eventually,
    eventually_equals,
)
from tests.support.fake_container import EveryImage
from tests.support.fake_engine import FakeEngine
from tests.support.harness import AgentSpec, ControlPlaneProcess
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

NO_ANSWER = (OSError, HTTPException)
Key = tuple[str, str]  # An account, and a session id of the caller
_CALLERS = 20  # Maximum number of concurrent calls
REPOSITORY = str(APPLICATION["repository"])


class Witness:
    """Checks all running sessions at every start on every host."""

    def __init__(self) -> None:
        self.engines: list[_SeenEngine] = []
        self.most: dict[str, int] = {}  # The session quota by account
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
        self.image_store.registry = EveryImage()
        self._witness = witness
        witness.engines.append(self)

    @property
    def running(self) -> list[Key]:
        held = [each for each in self.all if each.process is not None]
        identities = [decode_label(each.spec.labels).spec.identity for each in held]
        return [(each.account, each.session_id) for each in identities]

    async def hand_over(self, container: Container, channel: Path, start: Start) -> None:
        await super().hand_over(container, channel, start)
        self._witness.look()


class _ControlPlane(ControlPlaneProcess):
    ACCOUNTS = ("default", "other", "third")


class Outlived(Parts):
    """Successive control planes on one state, and the hosts that outlive them."""

    def __init__(
        self, folder: Path, *, hosts: int = 1, sessions_each: int = 100, **settings: Any
    ) -> None:
        """Create hosts for `sessions_each` sessions each; `settings`: of the control plane."""
        self.witness = Witness()
        self.registry = FakeRegistry()
        self.hosts = [
            WholeAgent(
                folder, f"h{n}", engine=_SeenEngine(self.witness), max_sessions=sessions_each
            )
            for n in range(hosts)
        ]
        super().__init__()
        self._settings = settings
        self.process: ControlPlaneProcess

    async def _start_parts(self) -> None:
        self._stack.push_async_callback(self.registry.stop)
        await self.registry.start()
        for host in self.hosts:
            self._stack.push_async_callback(host.stop)
            await host.start()
        agents = [AgentSpec(host.name, host.address) for host in self.hosts]
        self.process = _ControlPlane(agents, {"local": self.registry.address}, **self._settings)
        self._stack.push_async_callback(asyncio.to_thread, self.process.__exit__, None, None, None)
        await asyncio.to_thread(self.process.start)
        self._callers = ThreadPoolExecutor(_CALLERS)
        self._stack.push_async_callback(asyncio.to_thread, self._callers.shutdown)

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
        self, method: str, path: str, *, account: str = "", body: object = None
    ) -> tuple[int, Any]:
        """Return the status and body of an answer to an account, or to the operator.

        Raises:
            NO_ANSWER: The connection failed.
        """
        client = self.process.client(account) if account else self.process.operator
        ask = partial(client.request, method, path, body=body)
        answer = await asyncio.get_running_loop().run_in_executor(self._callers, ask)
        return answer.status, answer.json() if answer.body else None

    async def make_game(self, account: str) -> None:
        """Create the application `game` of an account, with a tag that every host has."""
        self.registry.push(REPOSITORY, "v1")
        small = {"reservation": {"cpu": 0.1, "ram": 64}, "limits": {"cpu": 1, "ram": 64}}
        body = APPLICATION | small
        assert (await self.call("POST", "/application", account=account, body=body))[0] == 201
        await self.enable("v1", account)

    async def enable(self, tag: str, account: str) -> None:
        """Enable a tag of the application `game`, and wait until a host has it."""
        path = "/application/game/tags"
        status, answer = await self.call("POST", path, account=account, body={"tag": tag})
        assert status == 204, answer
        await eventually(lambda: self.is_pulled(tag, account))

    async def is_pulled(self, tag: str, account: str) -> bool:
        """Return whether a host has a tag of the application `game`."""
        status, answer = await self.call("GET", f"/tag/local/game/{tag}", account=account)
        return status == 200 and bool(answer["exists"])

    async def until(self, path: str, holds: Callable[[Any], bool], account: str = "") -> None:
        """Wait until the answer to GET `path` is so."""

        async def now() -> bool:
            return holds((await self.call("GET", path, account=account))[1])

        await eventually(now)

    @property
    def sessions(self) -> list[Session]:
        """The recorded sessions of all hosts."""
        return [session for host in self.hosts for session in host.recorded]

    async def _assert_survived(self) -> None:
        if not self.process.process.is_running:
            await self.serve()
        for host in self.hosts:
            await eventually_equals(partial(_violations, host), [])
        assert not self.witness.doubled, self.witness.doubled
        assert not self.witness.beyond_quota, self.witness.beyond_quota
        await asyncio.to_thread(assert_callers_served, self.process, self.sessions)
        ledger.checked |= {*OF_A_HOST, 7, 9}


async def _violations(agent: WholeAgent) -> list[str]:
    async with grpc.aio.insecure_channel(agent.address) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)
        host = (await stub.GetHost(pb.GetHostRequest(), timeout=PATIENCE)).host
    return violations(agent.observed(host.free_tcp_ports + host.free_udp_ports))
