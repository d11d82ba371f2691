"""A complete Tiltyard on this machine: engine, registry, game, agent, control plane."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

import click

from tests.demo_game import TCP_PORT, UDP_PORT, Image
from tests.support.api_client import ApiClient
from tests.support.harness import (
    LOOPBACK,
    AgentProcess,
    AgentSpec,
    ControlPlaneProcess,
    Registry,
    wait_until,
)
from tests.support.leftovers import end_leftovers
from tests.support.loopback_registries import check_registries
from tests.support.pushed_image import push_game
from tests.support.real_engine import DockerEngine, remove_traces

REGION = "local"
APPLICATION = "demo-game"
REGISTRY_NAME = "local"
PATIENT: Mapping[str, Any] = {"start_timeout": 28.0, "unresponsive_after": 15.0}
"""Settings with which a stall of the host for some seconds refuses no start: the host has half of
start_timeout to answer. It is below the timeout of clients."""

_PULLED_TIMEOUT = 60.0  # Seconds in which an enabled tag must be pulled
_STOPS_AT_ONCE = 8
_ENDED = frozenset({"exited", "dead"})
_CORES_PER_CORE = 8  # Overcommitment of cores on a development host, with mostly idle sessions


class StepFailedError(Exception):
    """A failed step; its reason was printed."""


class Steps:
    """Prints one line per step with the time it took."""

    def __init__(self, write: Callable[[str], object] = click.echo) -> None:
        self._write = write
        self._begin = time.monotonic()

    @contextmanager
    def step(self, text: str) -> Iterator[list[str]]:
        """Time a step. What the block appends to the list is added to its line."""
        begin = time.monotonic()
        notes: list[str] = []
        try:
            yield notes
        except Exception as error:
            self._line("FAILED", begin, f"{text}: {str(error) or type(error).__name__}")
            raise StepFailedError(text) from error
        self._line("ok", begin, ": ".join([text, *notes[:1]]) + "".join(notes[1:]))

    def done(self, text: str) -> None:
        """Print the last line, with the total time."""
        self._line("ok", self._begin, text)

    def _line(self, outcome: str, begin: float, text: str) -> None:
        self._write(f"{outcome:6} {time.monotonic() - begin:8.3f} s  {text}")


class Deployment:
    """All parts, started step by step. Leaving ends the sessions and removes everything."""

    engine: DockerEngine
    registry: Registry
    image: Image
    agent: AgentProcess
    control_plane: ControlPlaneProcess

    def __init__(
        self, steps: Steps, *, prepared: int = 0, address: str = LOOPBACK, **settings: object
    ) -> None:
        """Start nothing yet; `settings` are the control plane's.

        The agent allows the host's network and all capabilities, so the node pool decides. It
        keeps at most `prepared` prepared containers. Its games are reached at `address`.
        """
        self._steps = steps
        self._address = address
        self._prepared = prepared
        self._settings = settings
        self._stack = ExitStack()

    @property
    def client(self) -> ApiClient:
        """A client with the default account's token."""
        return self.control_plane.client()

    def __enter__(self) -> Self:
        step = self._steps.step
        with ExitStack() as stack:
            with step("Docker Engine") as notes:
                self.engine = stack.enter_context(DockerEngine())
                end_leftovers(self.engine.socket)
                notes.append(str(self.engine.socket))
                check_registries(self.engine.socket)
            with step("registry") as notes:
                self.registry = stack.enter_context(Registry())
                notes.append(self.registry.address)
            with step("demo game compiled and pushed") as notes:
                self.image = push_game(self.registry.address)
                notes.append(self.image.reference)
            with step("agent") as notes:
                # Once the agent has ended: else it reports its removed containers.
                stack.callback(remove_traces, self.engine.socket, self.registry.address)
                agent = AgentProcess(
                    self.engine.socket,
                    prepared=self._prepared,
                    public_address=self._address,
                    bind_address=self._address,
                    latency_addresses=[self._address],
                    **_overcommitted(),
                )
                self.agent = stack.enter_context(agent.allow_privileges())
                notes.append(self.agent.address)
            with step("control plane") as notes:
                agents = [AgentSpec("local", self.agent.address)]
                registries = {REGISTRY_NAME: self.registry.address}
                self.control_plane = stack.enter_context(
                    ControlPlaneProcess(agents, registries, **self._settings)
                )
                stack.callback(self._end_sessions)
                notes.append(self.control_plane.base_url)
            with step("POST /application"):
                self.client.post("/application", application()).expect(201)
            with step("POST /application/{name}/tags, and the tag is pulled"):
                enable_tag(self.client, APPLICATION, self.image.tag)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._steps.step("sessions ended, everything stopped and removed"):
            self._stack.close()

    def _end_sessions(self) -> None:
        for account in ControlPlaneProcess.ACCOUNTS:
            client = self.control_plane.client(account)
            known = client.sessions(all="true")
            live = [session["id"] for session in known if session.get("status") not in _ENDED]
            with ThreadPoolExecutor(_STOPS_AT_ONCE) as pool:
                list(pool.map(client.delete_session, live))


def application(name: str = APPLICATION, **changes: object) -> dict[str, object]:
    """Return the body that creates the demo game's application."""
    return {
        "name": name,
        "registry": REGISTRY_NAME,
        "repository": "demo-game",
        "tagKeep": 3,
        "networkMode": "bridge",
        "limits": {"cpu": 1, "ram": 64},
        "reservation": {"cpu": 0.1, "ram": 32},
        "nodePool": "default",
        "regions": [REGION],
        "ports": [
            {"requested": UDP_PORT, "protocol": "udp", "tls": False},
            {"requested": TCP_PORT, "protocol": "tcp", "tls": False},
        ],
        **changes,
    }


def enable_tag(client: ApiClient, name: str, tag: str, region: str = REGION) -> None:
    """Enable a tag and wait until a host has pulled it; raise TimeoutError if none does."""
    client.post(f"/application/{name}/tags", {"tag": tag}).expect(204)
    wait_until(
        lambda: client.get(f"/tag/{region}/{name}/{tag}").expect(200).json()["exists"],
        f"no host pulled {name}:{tag}",
        _PULLED_TIMEOUT,
    )


def exit_on_signals(code: int) -> None:
    """Raise SystemExit at the first SIGINT or SIGTERM, so that the program cleans up."""

    def leave(_number: int, _frame: FrameType | None) -> NoReturn:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        sys.exit(code)

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, leave)


def _overcommitted() -> Mapping[str, object]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": (os.cpu_count() or 1) * _CORES_PER_CORE, "ram": memory // 2**20}
