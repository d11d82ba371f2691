"""Rare, blocking calls through Docker's SDK, on the threads of calls.py.

Only this imports `docker`.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import docker.errors
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

from agent.docker.container_config import has_layer_quota, why_refused
from agent.docker.dockerd import daemon_pid, grantable_nofile, known_settings
from agent.docker.errors import (
    Call,
    already_so,
    error_of_answer,
    error_of_connection,
    timed_out,
)
from agent.domain.errors import (
    ContainerGoneError,
    EngineError,
    EngineTimeoutError,
    ImageCannotRunError,
)

Client = docker.APIClient

OWN_NETWORK = "tiltyard0"
"""Network and interface of sessions if the default bridge does not isolate containers."""

MIN_API, _MAX_API = "1.41", "1.47"  # API versions: Docker Engine 20.10 has the first, 28.5 both
_ICC = "com.docker.network.bridge.enable_icc"
_BRIDGE_NAME = "com.docker.network.bridge.name"

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Cached properties of an engine. `settings`: of its daemon, empty if unreadable."""

    api: str
    cpus: int
    network: str
    nofile: int | None
    runc: str
    settings: Mapping[str, Any]
    has_layer_quota: bool


class _Connection(UnixHTTPConnection):
    """Closes its socket after an error; the SDK leaves that to the garbage collector."""

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
    """Keeps one connection; the SDK's own keeps one for each of the last 25 URLs."""

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        with self.pools.lock:
            pool = self.pools.get(self.socket_path)
            if pool is None:
                pool = _Pool(url, self.socket_path, self.timeout, 1)
                self.pools[self.socket_path] = pool
            return pool


class Clients:
    """SDK clients, one per thread: neither a client nor its timeout can be shared."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self._of_thread = threading.local()
        self._all: list[docker.APIClient] = []

    def mine(self, api: str, seconds: float) -> docker.APIClient:
        """This thread's client for an API version, with a timeout of `seconds`."""
        clients: dict[str, docker.APIClient] = self._of_thread.__dict__
        if api not in clients:
            clients[api] = docker.APIClient(f"unix://{self.socket_path}", version=api)
            clients[api].mount("http+docker://", _Adapter(f"http+unix://{self.socket_path}"))
            self._all.append(clients[api])
        clients[api].timeout = seconds  # type: ignore[assignment]  # requests takes fractions
        return clients[api]

    def close(self) -> None:
        """Close all clients; no call may be in progress."""
        for client in self._all:
            client.close()


def find_out(clients: Clients, seconds: float) -> EngineFacts:
    """Query an engine's facts; EngineError if it is too old."""
    first = clients.mine(MIN_API, seconds)
    reply = first.version(api_version=False)
    spoken = reply["ApiVersion"]
    if _number(spoken) < _number(MIN_API):
        raise EngineError("info", f"the engine has API {spoken}, and {MIN_API} is needed")
    version = min(spoken, _MAX_API, key=_number)
    client = clients.mine(version, seconds)
    daemon = daemon_pid(clients.socket_path)
    info = client.info()
    return EngineFacts(
        api=version,
        cpus=int(info["NCPU"]),
        network=_network(client),
        nofile=None if daemon is None else grantable_nofile(daemon),
        runc=component(reply, "runc"),
        settings=known_settings(daemon),
        has_layer_quota=has_layer_quota(info, _MOUNTS.read_text("utf-8", "replace")),
    )


def component(version: Mapping[str, Any], name: str) -> str:
    """The version of a component in a `/version` answer; empty if it is not listed."""
    parts = {part["Name"]: part["Version"] for part in version.get("Components") or ()}
    return str(parts.get(name, ""))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def keeps_apart(client: docker.APIClient) -> bool:
    """Return whether the default bridge isolates containers from each other."""
    default = client.networks(names=["bridge"])
    return any(
        found["Options"].get(_ICC) == "false" for found in default if found["Name"] == "bridge"
    )


def _network(client: docker.APIClient) -> str:
    """Find or create a network that isolates sessions from each other."""
    if keeps_apart(client):
        return "bridge"
    try:
        found = client.inspect_network(OWN_NETWORK)
    except docker.errors.NotFound:
        try:
            client.create_network(
                OWN_NETWORK,
                driver="bridge",
                options={_ICC: "false", _BRIDGE_NAME: OWN_NETWORK},
                check_duplicate=True,
            )
        except docker.errors.APIError as error:
            if error.status_code != 409:  # another agent on this host may just have created it
                raise
    else:
        if found["Options"].get(_ICC) != "false":
            raise EngineError(
                "info", f"network {OWN_NETWORK} lets containers reach each other: remove it"
            )
    return OWN_NETWORK


def check_image(api: docker.APIClient, image: str) -> None:
    """Raise ImageCannotRunError if an image is refused."""
    found = api.inspect_image(image)  # type: ignore[no-untyped-call]
    cause = why_refused(found["Config"] or {})
    if cause is not None:
        raise ImageCannotRunError(cause)


def written_bytes(api: docker.APIClient, container: str) -> int:
    """Bytes in the writable layer and the image volumes of a container, given by its id."""
    entries = api.containers(all=True, size=True, filters={"id": container})
    if not entries:
        raise ContainerGoneError(container)
    mounts = entries[0].get("Mounts") or ()
    volumes = {mount["Source"] for mount in mounts if mount.get("Type") == "volume"}
    sizes = [int(entries[0].get("SizeRw", 0))]
    if volumes:
        sizes += _volume_sizes(api, volumes)
    if min(sizes) < 0:
        raise EngineError("written-bytes", "the engine could not measure all of it")
    return sum(sizes)


def _volume_sizes(api: docker.APIClient, paths: set[str]) -> list[int]:
    """Bytes of the volumes at these paths: mounts do not name them in 28.5.

    Before API 1.42 the engine measures everything else, too.
    """
    url = f"{api.base_url}/v{api.api_version}/system/df"
    answer = api.get(url, params={"type": "volume"}, timeout=api.timeout)
    if not answer.ok:
        raise EngineError("written-bytes", answer.text)
    volumes = answer.json()["Volumes"] or ()
    return [int(each["UsageData"]["Size"]) for each in volumes if each["Mountpoint"] in paths]


def unless_so(call: Call, act: Callable[..., object], *args: str) -> None:
    """Call `act`; ignore an error that means it was done already."""
    try:
        act(*args)
    except docker.errors.APIError as error:
        if not already_so(call, error.status_code or 0, str(error.explanation)):
            raise


@contextlib.contextmanager
def translated(call: Call, forget: Callable[[], None]) -> Iterator[None]:
    """Convert the SDK's exceptions; call `forget` if the connection is lost."""
    try:
        yield
    except docker.errors.APIError as error:
        raise error_of_answer(call, error.status_code or 0, str(error.explanation)) from error
    except (docker.errors.DockerException, KeyError, TypeError, ValueError) as error:
        if call.changes:
            raise EngineTimeoutError(call.name) from error  # it may have taken effect
        raise EngineError(call.name, f"the engine's answer cannot be read: {error}") from error
    except OSError as error:  # the base class of requests' errors
        if not timed_out(error):
            forget()
        raise error_of_connection(call, error) from error
