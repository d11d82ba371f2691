"""The Docker Engine as an `Engine`; the only importer of `docker`.

Calls go through the SDK on threads (engine_calls.py), streams through the event loop
(docker_streams.py). Nothing is read before the first call, so the daemon may come later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import docker
import docker.errors
from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)

from agent.container_config import container_config
from agent.docker_answers import container_of, pid_of, references, warnings_of
from agent.docker_errors import (
    Call,
    already_so,
    being_removed,
    error_of_answer,
    error_of_connection,
    timed_out,
)
from agent.docker_listing import Listing
from agent.docker_streams import DockerStreams
from agent.dockerd import daemon_pid, grantable_nofile
from agent.engine import (
    LABEL_AGENT,
    LABEL_FORMAT,
    Container,
    ContainerSpec,
    Credentials,
    EngineInfo,
    PullProgress,
    container_name,
)
from agent.engine_calls import EngineCalls, Timeouts
from agent.errors import EngineError, EngineTimeout, ImageCannotRun
from agent.processes import live_process, wait_end
from agent.program import why_not_run
from agent.session import FORMAT, Process

OWN_NETWORK = "tiltyard0"
"""Bridge network and interface of sessions where the default bridge lets containers talk."""

_MIN_API = "1.41"
_MAX_API = "1.47"
"""API versions of Docker Engine 20.10 to 27; a newer engine speaks the latter too."""
_ICC = "com.docker.network.bridge.enable_icc"
_BRIDGE_NAME = "com.docker.network.bridge.name"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is asked of an engine once, until it goes away: another one may come back."""

    api: str
    cpus: int
    network: str
    nofile: int | None


class DockerEngine:
    """An `Engine` on the unix socket of a Docker daemon."""

    def __init__(
        self, socket_path: str = "/run/docker.sock", *, timeouts: Timeouts | None = None
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._streams = DockerStreams(
            socket_path, silence=self._timeouts.stream, pull_silence=self._timeouts.pull
        )
        self._calls = EngineCalls()
        self._clients = _Clients(socket_path)
        self._facts: _Facts | None = None
        self._search: asyncio.Task[_Facts] | None = None
        self._listing = Listing(self._calls, self._inspect_for_listing, self._timeouts.read)

    async def info(self) -> EngineInfo:
        """Describe the engine; also the way to ask whether it answers."""
        self._forget()  # what was true of the engine may have changed with its settings
        facts = await self._known()
        answer = await self._ask(Call("info"), self._timeouts.read, lambda api: api.info())
        return EngineInfo(
            version=answer["ServerVersion"],
            cpus=int(answer["NCPU"]),
            memory_bytes=int(answer["MemTotal"]),
            warnings=warnings_of(answer, own_network=facts.network == OWN_NETWORK),
        )

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container and return its id."""
        facts = await self._known()
        name = container_name(spec.internal_id)
        config = container_config(
            spec, cpus=facts.cpus, nofile=facts.nofile, network=facts.network
        )
        return await self._ask(
            Call("create", container=name, image=spec.image, changes=True),
            self._timeouts.create,
            lambda api: _create(api, config, name),
        )

    async def start(self, container: str) -> None:
        """Start a created or ended container; nothing happens to one that runs."""
        await self._ask(
            Call("start", container=container, changes=True),
            self._timeouts.start,
            lambda api: _start(api, container),
        )

    async def inspect(self, container: str) -> Container:
        """Describe one container by id or name."""
        return await self._ask(
            Call("inspect", container=container),
            self._timeouts.read,
            lambda api: _inspect(api, container),
        )

    async def list(self, agent_id: str) -> list[Container]:
        """Describe all containers that carry the label of this agent, running or not."""
        filters = {"label": f"{LABEL_AGENT}={agent_id}"}
        entries = await self._ask(
            Call("list"),
            self._timeouts.read,
            lambda api: api.containers(all=True, filters=filters),
        )
        return await self._listing.described(entries)

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal; nothing happens to one that does not run."""
        call = Call("kill", container=container, changes=True)
        await self._ask(
            call, self._timeouts.kill, lambda api: _unless_so(call, api.kill, container, signal)
        )

    async def remove(self, container: str) -> None:
        """Remove a container, running or not; nothing happens when it is gone."""
        call = Call("remove", container=container, changes=True)
        seconds = self._timeouts.remove
        await self._ask(call, seconds, lambda api: _remove(api, call, seconds))

    async def wait_end(self, process: Process) -> None:
        """Return when the process is gone; seen at the process, not asked of the engine."""

        async def read(pid: int) -> Process | None:
            return await self._calls.run(
                Call("inspect"), self._timeouts.read, partial(live_process, pid)
            )

        await wait_end(process, read)

    async def images(self) -> frozenset[str]:
        """References by digest of all images on the host."""
        return references(
            await self._ask(Call("images"), self._timeouts.read, lambda api: api.images())
        )

    def logs(
        self, container: str, *, follow: bool = False, since: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read stdout and stderr, each in order; with `follow` until the container's run ends."""
        return self._streams.logs(container, follow=follow, since=since)

    def archive(
        self, container: str, path: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read a file or folder as an uncompressed tar."""
        return self._streams.archive(container, path)

    def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[PullProgress]]:
        """Pull an image by digest; the iterator ends when the image is on the host."""
        return self._streams.pull(image, credentials)

    def events(self, agent_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Internal ids of sessions whose container changed; a hint, with gaps (M7)."""
        return self._streams.events(agent_id)

    async def close(self) -> None:
        """Let go of threads and connections; calls under way run to their deadlines."""
        await self._streams.close()
        await self._calls.close()
        self._clients.close()

    async def _ask(self, call: Call, seconds: float, ask: Callable[[docker.APIClient], T]) -> T:
        facts = await self._known()
        try:
            return await self._run(
                call, seconds, lambda: ask(self._clients.mine(facts.api, seconds))
            )
        except EngineError as error:
            if OWN_NETWORK in error.cause:
                self._forget()  # somebody removed our network: it is made again
            raise

    async def _run(self, call: Call, seconds: float, work: Callable[[], T]) -> T:
        def translated() -> T:
            with _translated(call, self._forget):
                return work()

        return await self._calls.run(call, seconds, translated)

    async def _known(self) -> _Facts:
        """What is known of the engine; all who ask while it is unknown share one search."""
        if self._facts is not None:
            return self._facts
        if self._search is None:
            self._search = asyncio.create_task(self._find_out(), name="engine-facts")
            self._search.add_done_callback(self._found_out)
        return await asyncio.shield(self._search)

    async def _find_out(self) -> _Facts:
        seconds = self._timeouts.read
        return await self._run(Call("info"), seconds, lambda: _find_out(self._clients, seconds))

    def _found_out(self, search: asyncio.Task[_Facts]) -> None:
        self._search = None
        if not search.cancelled() and search.exception() is None:
            self._facts = search.result()

    async def _inspect_for_listing(self, container: str) -> Container:
        return await self._ask(
            Call("list", container=container),
            self._timeouts.read,
            lambda api: _inspect(api, container),
        )

    def _forget(self) -> None:
        self._facts = None


class _Connection(UnixHTTPConnection):
    """Closes its socket when nobody answers; the SDK leaves that to the garbage collector."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.unix_socket)
        except OSError:
            self.close()
            raise


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        return _Connection(self.base_url, self.socket_path)


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(url, self.socket_path, self.timeout, 1)
            return pool


class _Clients:
    """A client of the SDK for each thread: one may not be shared, nor may its time-out."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self._of_thread = threading.local()
        self._all: list[docker.APIClient] = []

    def mine(self, api: str, seconds: float) -> docker.APIClient:
        """This thread's client for a version of the API, set to a time-out."""
        clients: dict[str, docker.APIClient] = self._of_thread.__dict__
        if api not in clients:
            clients[api] = docker.APIClient(f"unix://{self.socket_path}", version=api)
            clients[api].mount("http+docker://", _Adapter(f"http+unix://{self.socket_path}"))
            self._all.append(clients[api])
        clients[api].timeout = seconds  # type: ignore[assignment]  # requests takes fractions
        return clients[api]

    def close(self) -> None:
        """Close all; no thread may be at work."""
        for client in self._all:
            client.close()


def _find_out(clients: _Clients, seconds: float) -> _Facts:
    first = clients.mine(_MIN_API, seconds)
    spoken = first.version(api_version=False)["ApiVersion"]
    if _number(spoken) < _number(_MIN_API):
        raise EngineError("info", f"the engine speaks API {spoken}, and {_MIN_API} is needed")
    version = min(spoken, _MAX_API, key=_number)
    client = clients.mine(version, seconds)
    daemon = daemon_pid(clients.socket_path)
    return _Facts(
        api=version,
        cpus=int(client.info()["NCPU"]),
        network=_network(client),
        nofile=None if daemon is None else grantable_nofile(daemon),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _network(client: docker.APIClient) -> str:
    """The network of sessions: one in which they do not reach each other."""
    default = client.networks(names=["bridge"])
    if any(
        found["Options"].get(_ICC) == "false" for found in default if found["Name"] == "bridge"
    ):
        return "bridge"
    try:
        found = client.inspect_network(OWN_NETWORK)
    except docker.errors.NotFound:
        with _ignoring_conflict():
            client.create_network(
                OWN_NETWORK,
                driver="bridge",
                options={_ICC: "false", _BRIDGE_NAME: OWN_NETWORK},
                labels={LABEL_FORMAT: str(FORMAT)},
                check_duplicate=True,
            )
    else:
        if found["Options"].get(_ICC) != "false":
            raise EngineError(
                "info", f"network {OWN_NETWORK} lets containers reach each other: remove it"
            )
    return OWN_NETWORK


@contextlib.contextmanager
def _ignoring_conflict() -> Iterator[None]:
    """Another agent on this host may make the network at the same moment."""
    try:
        yield
    except docker.errors.APIError as error:
        if error.status_code != 409:
            raise


def _create(api: docker.APIClient, config: dict[str, Any], name: str) -> str:
    answer = api.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
    return str(answer["Id"])


def _start(api: docker.APIClient, container: str) -> None:
    api.start(container)
    cause = why_not_run(
        pid_of(api.inspect_container(container)),
        lambda: _inspect(api, container),
        lambda: api.logs(container, stdout=False, tail=5),
    )
    if cause is not None:
        raise ImageCannotRun(cause)


def _inspect(api: docker.APIClient, container: str) -> Container:
    answer = api.inspect_container(container)
    pid = pid_of(answer)
    return container_of(answer, None if pid is None else live_process(pid))


def _unless_so(call: Call, act: Callable[..., object], *args: str) -> None:
    try:
        act(*args)
    except docker.errors.APIError as error:
        if not already_so(call, error.status_code or 0, str(error.explanation)):
            raise


def _remove(api: docker.APIClient, call: Call, seconds: float) -> None:
    try:
        _unless_so(call, partial(api.remove_container, v=True, force=True), call.container)
    except docker.errors.APIError as error:
        if not being_removed(error.status_code or 0, str(error.explanation)):
            raise
        wait = partial(api.wait, timeout=int(seconds) or 1, condition="removed")
        _unless_so(call, wait, call.container)


@contextlib.contextmanager
def _translated(call: Call, forget: Callable[[], None]) -> Iterator[None]:
    """Turn whatever the SDK raises into our errors; `forget` what is known of a lost engine."""
    try:
        yield
    except docker.errors.APIError as error:
        raise error_of_answer(call, error.status_code or 0, str(error.explanation)) from error
    except (docker.errors.DockerException, KeyError, TypeError, ValueError) as error:
        if call.changes:
            raise EngineTimeout(call.name) from error  # it may have taken place all the same
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error
    except OSError as error:  # what requests raises is one
        if not timed_out(error):
            forget()
        raise error_of_connection(call, error) from error
