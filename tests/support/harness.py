"""The real parts that tests, the demo and the benchmark use.

Each is a context manager with bounded start and stop that ends only its own processes.
The Docker Engine is in `real_engine.py`, the game's image in `demo_game`.
"""

import http.client
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.api_client import ApiClient
from tests.support.leftovers import AGENT_CONFIG, REGISTRY_CONFIG, lock_folder
from tests.support.real_engine import UnavailableError, accepts
from tiltyard.contract import Capability

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"

_START_TIMEOUT = 30.0  # Importing grpc and pydantic takes 2 s on a busy 2-core machine
_STOP_TIMEOUT = 30.0  # Longer than the sum of the shutdown stages of either program
_POLL = 0.02


_FIRST_PORT = 61_000
"""Above the kernel's ephemeral ports, which outgoing connections may take at any time."""
_PORTS_AT_ONCE = 2
_PORTS_OF_A_PROCESS = 250
_offsets = itertools.cycle(range(0, _PORTS_OF_A_PROCESS, _PORTS_AT_ONCE))
for _ in range(os.getpid() % _PORTS_OF_A_PROCESS):  # since not all processes are workers
    next(_offsets)


def wait_until(
    reached: Callable[[], object], what: str, timeout: float = 30.0, poll: float = _POLL
) -> None:
    """Poll until a condition holds; TimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {timeout:g} s")
        time.sleep(poll)


def free_port() -> int:
    """Return a loopback TCP port that is free, as is the next one.

    Concurrent test processes get different ones.
    """
    beside = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
    for _ in range(0, _PORTS_OF_A_PROCESS, _PORTS_AT_ONCE):
        first = _FIRST_PORT + beside * _PORTS_OF_A_PROCESS + next(_offsets)
        if all(map(_is_free, range(first, first + _PORTS_AT_ONCE))):
            return first
    raise RuntimeError("no two free ports beside each other")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def source_files() -> list[str]:
    """The files of a clone of this working tree, without .venv and generated files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    ).stdout
    # A deleted but uncommitted file does not exist.
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_sources(folder: Path) -> None:
    """Copy the files of a clone of this working tree to a folder, without history."""
    for name in source_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def registry_unavailable() -> str:
    """Return why this machine cannot run a registry; empty if it can."""
    if shutil.which("docker-registry") is None:
        return "there is no docker-registry: install the package docker-registry"
    return ""


def to_toml(settings: Mapping[str, object]) -> str:
    """Format settings as TOML: scalars, lists of scalars, and lists of tables.

    Strings, numbers, booleans and flat lists have the same form in JSON and TOML.
    """
    lines = []
    tables = []
    for key, value in settings.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables += [(key, table) for table in value]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    for key, table in tables:
        lines += ["", f"[[{key}]]", to_toml(table).rstrip()]
    return "\n".join(lines) + "\n"


@contextmanager
def running(command: Sequence[str | Path]) -> Iterator[None]:
    """Run a program meanwhile that prints a line once it is ready; at the end it is killed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "it has ended"
            yield
        finally:
            process.kill()


class Process:
    """A program in its own process session, with its output in a file."""

    start_timeout = _START_TIMEOUT  # Maximum seconds from its start until it is ready

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid; only available between start and stop."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True from its start to its end."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status; None while it runs or after `stop`."""
        return None if self._process is None else self._process.poll()

    def launch(self, command: Sequence[str], ready: Callable[[], bool]) -> None:
        """Start it and wait until it is ready; on failure it is killed."""
        assert self._process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=_environment(self.name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is ours to handle
            )

        def is_ready() -> bool:
            if ready():
                return True
            if self.returncode is not None:
                raise RuntimeError(f"{self.name} ended with {self.returncode}:\n{self.tail()}")
            return False

        try:
            wait_until(is_ready, f"{self.name} is ready", self.start_timeout)
        except TimeoutError:
            tail = self.tail()
            self.kill()
            raise RuntimeError(f"{self.name} was not ready in time:\n{tail}") from None
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM and wait; raise RuntimeError if it needs SIGKILL or fails."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} ignored SIGTERM:\n{self.tail()}") from None
        self._process = None
        if code not in {0, -15}:
            raise RuntimeError(f"{self.name} ended with {code}:\n{self.tail()}")

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def has_logged(self, text: str) -> bool:
        """Return whether its output has this text."""
        return text in self.log.read_text(errors="replace")

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class _Part:
    """A process with its own temporary folder, which a later run removes if this one is killed."""

    def __init__(self, name: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix=f"tiltyard-{name}-")
        self.folder = Path(self._temporary.name)
        self._lock = lock_folder(self.folder)
        self.process = Process(name, self.folder / "output.log")

    def start(self) -> None:
        """Start the process and wait until it serves."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.process.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        with self._lock:  # until the folder is gone
            self._temporary.cleanup()

    def kill(self) -> None:
        """Kill it by SIGKILL; its folder stays."""
        self.process.kill()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same folder."""
        self.process.stop()
        self.start()


class Registry(_Part):
    """A registry without authentication on a free port of this machine.

    `settings` add to or replace those made here.
    """

    def __init__(self, host: str = "127.0.0.1", **settings: object) -> None:
        reason = registry_unavailable()
        if reason:
            raise UnavailableError(reason)
        super().__init__("registry")
        self.address = f"{host}:{free_port()}"
        self.settings = settings

    def start(self) -> None:
        self.launch(lambda: _http_status(self.address, "/v2/") == 200)

    def launch(self, ready: Callable[[], bool]) -> None:
        """Start it with its settings and wait until it is ready."""
        config = self.folder / REGISTRY_CONFIG
        settings = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "data")},
                "delete": {"enabled": True},
            },
            "http": {"addr": self.address},
            **self.settings,
        }
        config.write_text(json.dumps(settings))  # JSON is valid YAML
        self.process.launch(["docker-registry", "serve", str(config)], ready)


class AgentProcess(_Part):
    """`tiltyard-agent serve` on a unix socket; `settings` add to or replace those made here."""

    program: tuple[str, ...] = ("agent",)  # Or a test module that runs it

    def __init__(self, docker_socket: Path, **settings: object) -> None:
        super().__init__("agent")
        self.wrapper: Sequence[str] = ()  # A command prefix for the agent, from the next start on
        self.clocks_moved = False  # True if `wrapper` gives it other clocks than the machine's
        self.down_seconds = 0.0  # How long it has been down after kills, in all
        self._killed = 0.0
        self.started_by_others = 0  # How often another program started the container of a session
        self.doubles_lines = False  # True for an engine 20.10 that has forgotten a run
        self.engine_forgets = False  # True if its engine may have no space to clean up
        self.state_dir = self.folder / "state"
        self.socket = self.folder / "agent.sock"
        self.config = self.folder / AGENT_CONFIG
        self.settings: dict[str, object] = {
            "state_dir": str(self.state_dir),
            "socket": str(self.socket),
            "docker_socket": str(docker_socket),
            # Tests and the demo must not be reachable from other machines.
            "public_address": LOOPBACK,
            "bind_address": LOOPBACK,
            "latency_addresses": [LOOPBACK],
            "firewall_bridges": [],  # tests must not change the machine's firewall
            "metrics_listen": "",
            # By default none, since tests count the containers of sessions.
            "prepared": int(os.environ.get("TILTYARD_TEST_PREPARED", "0")),
            **settings,
        }

    def allow_privileges(self) -> Self:
        """Allow the host's network and all capabilities in its policy, from the next start on."""
        policy = self.folder / "policy.toml"
        capabilities = ", ".join(f'"{each}"' for each in Capability)
        policy.write_text(f"host_network = true\ncapabilities = [{capabilities}]\n")
        self.settings["policy"] = str(policy)
        return self

    @property
    def address(self) -> str:
        """The address that a control plane dials."""
        return f"unix:{self.socket}"

    @property
    def agent_id(self) -> str:
        return (self.state_dir / "agent_id").read_text().strip()

    @property
    def stop_grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        return float(str(self.settings.get("stop_grace", 10)))

    def directories(self) -> set[str]:
        """Names of the sessions' directories."""
        return {path.name for path in (self.state_dir / "sessions").iterdir()}

    def start(self) -> None:
        self.config.write_text(to_toml(self.settings))
        self.process.launch(
            [
                *self.wrapper,
                sys.executable,
                "-m",
                *self.program,
                "serve",
                "--config",
                str(self.config),
            ],
            lambda: accepts(self.socket),
        )
        if self._killed:
            self.down_seconds += time.monotonic() - self._killed
            self._killed = 0.0

    def kill(self) -> None:
        """Kill it by SIGKILL, and wait for its end even behind a wrapper."""
        super().kill()
        self._killed = self._killed or time.monotonic()
        wait_until(lambda: not accepts(self.socket), "the wrapped agent has not ended")


@dataclass(frozen=True)
class AgentSpec:
    """An agent in the settings of a control plane."""

    name: str
    address: str
    region: str = "local"
    node_pool: str = "default"


class ControlPlaneProcess(_Part):
    """`tiltyard-controlplane serve` with two accounts, on a free loopback port.

    A restart keeps the port, so that earlier clients stay usable.
    """

    ACCOUNTS: tuple[str, ...] = ("default", "other")
    program: tuple[str, ...] = ("controlplane",)  # Or a test module that runs it, and an argument

    def __init__(
        self, agents: Sequence[AgentSpec], registries: Mapping[str, str], **settings: object
    ) -> None:
        super().__init__("controlplane")
        self.state_dir = self.folder / "state"
        self.config = self.folder / "controlplane.toml"
        self.base_url = ""
        self.tokens: dict[str, str] = {}  # The token of each account, with the nine scopes
        self.made: dict[str, list[str]] = {account: [] for account in self.ACCOUNTS}
        """The ids of sessions that were answered to a client of an account."""
        self.operator_token = ""
        self.settings: dict[str, object] = {
            "state_dir": str(self.state_dir),
            # Not a port of the kernel's choice: while it is down, another program could get that.
            "api_listen": f"127.0.0.1:{free_port()}",
            "enrol_listen": "",
            "metrics_listen": "",
            "environment": "sandbox",
            "regions": ["local"],
            "node_pools": ["default"],
            "registries": [
                {"name": name, "address": address, "aliases": []}
                for name, address in registries.items()
            ],
            "agents": [vars(agent) for agent in agents],
            **settings,
        }

    def client(self, account: str = "default") -> ApiClient:
        """Return a client of this account."""
        return ApiClient(self.base_url, self.tokens[account], made=self.made.get(account))

    @property
    def operator(self) -> ApiClient:
        """A client of the operator."""
        return ApiClient(self.base_url, self.operator_token)

    def start(self) -> None:
        self.config.write_text(to_toml(self.settings))
        if not self.tokens:
            self._init()
        begin = self.process.log.stat().st_size if self.process.log.exists() else 0
        self.process.launch(
            [sys.executable, "-m", *self.program, "serve", "--config", str(self.config)],
            lambda: self._is_ready(begin),
        )

    def _init(self) -> None:
        """Do what `init` does in this process, which saves a second of imports."""
        from controlplane.cli.server import initialise  # noqa: PLC0415 (few need it)
        from controlplane.settings.model import load_config  # noqa: PLC0415

        made = initialise(load_config(self.config, {}), self.ACCOUNTS, new_operator_token=False)
        self.tokens = made.accounts
        self.operator_token = made.operator_token or ""

    def _is_ready(self, begin: int) -> bool:
        """Return whether it serves; the log before byte `begin` is of an earlier process."""
        with self.process.log.open("rb") as log:
            log.seek(begin)
            found = re.search(rb"event=listening address=(http://[\w.:\[\]-]+:\d+)", log.read())
        if found is None:
            return False
        self.base_url = found[1].decode()
        return _http_status(self.base_url.removeprefix("http://"), "/readyz") == 200


def _environment(name: str) -> dict[str, str]:
    """The environment of a program as shipped and as its unit sets it, if it has one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TILTYARD_")}
    unit = ROOT / f"systemd/tiltyard-{name}.service"
    lines = unit.read_text() if unit.exists() else ""
    of_unit = dict(re.findall(r"^Environment=(\w+)=(.*)$", lines, re.MULTILINE))
    return {**kept, **of_unit, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def _http_status(address: str, path: str) -> int:
    """Return the status of a GET, or 0 without an answer."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
