"""Both programs on a whole Debian 13, set up by an operator who types docs/operations.md.

The commands of First steps and the two settings files beside them are the page's, word for word.
What the page leaves to its reader is added: names of its examples, an API for the network, and a
registry with a password whose certificate is of a private authority.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from tests.docker.procedures import PAGE, commands
from tests.docker.stack import eventually
from tests.host.machine import Machine
from tests.support.api_client import ApiClient
from tests.support.certificates import SERVES, Signer, trusting
from tests.support.controlplane.secured_registry import USER, SecuredRegistry
from tests.support.deployment import APPLICATION
from tests.support.pushed_image import push_image
from tests.systemd.installed import (
    AGENT,
    CONTROL_PLANE,
    HOST,
    SOURCES,
    TOKENS,
    WHEELS,
    Installed,
    unpack_sources,
)

WARM = "warm"  # An application of which one standby is ready
WARM_POOL = f"/warm-pool/{WARM}/eu"
REGISTRY = "registry.example"
_REGISTRY_PORT = 5000
_NAMES = """\
127.0.0.1 localhost
{address} control.example
{host_address} registry.example time.example
"""
_API = 'api_listen = "0.0.0.0:8080"\nbehind_proxy = ["{host_address}"]\n'
_CREDENTIALS = """\
username = "{username}"
password_file = "/etc/tiltyard/password.txt"
private = true
ca_file = "/etc/tiltyard/ca.pem"
"""
_PATIENT_UNIT = "[Service]\nTimeoutStartSec=1800\nWatchdogSec=300\n"  # Emulation is slow
_PATIENT_AGENT = """\
ExecStartPre=
ExecStartPre=-+/opt/tiltyard/agent/bin/tiltyard-agent firewall apply
"""
_SLOW = "start_timeout = 60.0\nunresponsive_after = 60.0\n"  # Emulation: ten times the defaults
_COMMAND_TIMEOUT = 60.0
_HINT = re.compile(r"^  (cp .*daemon\.json .*)$", re.MULTILINE)  # Of `make install-agent`
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLANE_SETTINGS, _AGENT_SETTINGS = _TOML.findall(
    PAGE.partition("\n## First steps\n")[2].partition("\n## ")[0]
)
_STEPS = commands("First steps")
_INSTALL_AGENT = "make install-agent"
_TOKEN_OF_HOST = ("agent", "token", "--region", "eu", "--token-file", TOKENS)
_OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
SECOND = "host-2"


@dataclass
class WholeHost(Installed):
    """A machine on which both programs run and the demo game can be started."""

    system: Machine
    authority: str  # The certificate of the registry's
    made: list[str] = field(default_factory=list)  # Ids of all sessions that were answered

    region = "eu"
    account = "studio"

    @property
    def client(self) -> ApiClient:
        token = self.tokens["accounts"][self.account]
        return ApiClient(self.api, token, made=self.made)

    def keep_standby(self) -> None:
        """Keep a standby of WARM ready."""
        self.client.put(WARM_POOL, {"size": 1}).expect(204)

        def is_ready() -> bool:
            [pool] = self.client.get("/warm-pool").expect(200).json()["warmPools"]
            return bool(pool["ready"] == 1)

        eventually(is_ready, "a standby is ready", patience=self.patience)

    def until_started(self, **body: object) -> None:
        """Repeat a start until it succeeds."""

        def started() -> bool:
            return self.try_to_start(**body).status == HTTPStatus.CREATED  # type: ignore[arg-type]

        eventually(started, "a session starts", patience=self.patience)

    def end_all(self) -> None:
        """End every live session."""
        for each in self.client.sessions():
            self.end(each["id"])


class Shell:
    """A root shell in the sources, in which variables stay set."""

    def __init__(self, system: Machine) -> None:
        self._system = system
        self._exports: list[str] = []

    def attempt(self, line: str) -> tuple[int, str]:
        """Type a line; return its exit code and output."""
        if line.startswith("export "):
            self._exports.append(line)
            return 0, ""
        script = "\n".join([f"cd {SOURCES}", *self._exports, line])
        done = self._system.attempt("bash", "-euc", script, timeout=_COMMAND_TIMEOUT)
        return done.returncode, done.stdout + done.stderr

    def type(self, line: str) -> str:
        """Type a line, which must succeed; return its output."""
        code, output = self.attempt(line)
        assert code == 0, f"{line}: {code}: {output}"
        return output


@contextmanager
def whole_host(tmp_path: Path) -> Iterator[WholeHost]:
    """Boot a machine, follow the first steps, create an application."""
    with Machine(_OFFLINE) as system, _registry(system, tmp_path) as (registry, authority):
        _prepare(system, system)
        _follow_first_steps(system, authority)
        tokens = json.loads(system.run("cat", TOKENS))
        host = WholeHost(system, registry, tokens, authority=authority)
        host.until_ready()
        for name in (APPLICATION, WARM):
            host.make_game(name, registry="own")
        host.keep_standby()
        yield host


@contextmanager
def second_host(first: WholeHost) -> Iterator[Machine]:
    """Boot another machine and let it join the control plane of the first as SECOND."""
    with Machine(_OFFLINE) as system, system.network.joined(first.system.network):
        _prepare(system, first.system)
        token = first.system.run(CONTROL_PLANE, *_TOKEN_OF_HOST)
        system.write(f"{SOURCES}/host.token", token)
        _install_agent(system, first.authority, SECOND)
        first.until_ready(SECOND)
        yield system


def _prepare(system: Machine, plane: Machine) -> None:
    """Put the sources there, and the names of the page; be patient with emulation."""
    unpack_sources(system)
    system.write("/etc/hosts", _NAMES.format(**vars(plane.network)))
    for unit, more in ((AGENT, _PATIENT_AGENT), (CONTROL_PLANE, "")):
        system.write(f"/etc/systemd/system/{unit}.service.d/slow.conf", _PATIENT_UNIT + more)


def _follow_first_steps(system: Machine, authority: str) -> None:
    """Type the commands, and write each settings file after the first command of its program."""
    shell = Shell(system)
    for line in _STEPS[: _STEPS.index(_INSTALL_AGENT)]:
        shell.type(line)
        if line == "make install-controlplane":
            system.write("/etc/tiltyard/ca.pem", authority)
            system.write("/etc/tiltyard/password.txt", USER["password"])
            owner = "tiltyard-controlplane:tiltyard-controlplane"
            system.run("chown", owner, "/etc/tiltyard/password.txt")
            system.run("chmod", "600", "/etc/tiltyard/password.txt")
            api = _API.format(**vars(system.network))
            settings = api + _SLOW + _PLANE_SETTINGS + _CREDENTIALS.format(**USER)
            system.write("/etc/tiltyard/controlplane.toml", settings)
    _install_agent(system, authority, HOST)


def _install_agent(system: Machine, authority: str, name: str) -> None:
    """Follow the first steps on a host, which has host.token."""
    shell = Shell(system)
    [settings_of_engine] = _HINT.findall(shell.type(_INSTALL_AGENT))
    shell.type(settings_of_engine)
    system.write("/etc/tiltyard/agent.toml", _AGENT_SETTINGS)
    system.write(f"{SOURCES}/ca.pem", authority)
    for each in commands("Registry credentials"):
        shell.type(each)
    for line in _STEPS[_STEPS.index(_INSTALL_AGENT) + 1 :]:
        code, output = shell.attempt(line.replace(f"--name {HOST}", f"--name {name}"))
        may_fail = line == "tiltyard-agent doctor"  # the firewall has no rules yet
        assert code == 0 or may_fail, f"{line}: {code}: {output}"


@contextmanager
def _registry(system: Machine, folder: Path) -> Iterator[tuple[SecuredRegistry, str]]:
    """Serve a registry to the system, with the game; yield its authority's certificate, too."""
    signer = Signer.new()
    party = signer.sign(SERVES, hosts=[REGISTRY])
    tls = {name: str(folder / f"registry-{name}.pem") for name in ("certificate", "key")}
    Path(tls["certificate"]).write_bytes(party.certificate + signer.certificate)
    Path(tls["key"]).write_bytes(party.key)
    registry = SecuredRegistry(tls, host=system.network.host_address)
    registry.address = f"{system.network.host_address}:{_REGISTRY_PORT}"
    with registry:
        context = trusting(signer.certificate)
        context.check_hostname = False  # the push goes to the address
        log_in = USER["username"], USER["password"]
        push_image(registry.address, "demo-game", log_in=log_in, context=context)
        yield registry, signer.certificate.decode()
