"""The settings file and the command line."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import sys
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from controlplane.cli.main import main
from controlplane.settings.model import AgentConfig, Config, load_config
from controlplane.settings.registries import RegistryConfig
from tests.support.controlplane.commands import finished
from tests.support.controlplane.stub_api import StubApi
from tests.support.service_manager import a_manager
from tiltyard.runtime.settings import SettingsError

AGENT = '[[agents]]\nname = "a"\naddress = "unix:/a.sock"\nregion = "eu"\n'
REGISTRY = '[[registries]]\nname = "r"\naddress = "h:1"\n'


def load(tmp_path: Path, text: str, **env: str) -> Config:
    path = tmp_path / "controlplane.toml"
    path.write_text(text)
    return load_config(path, {f"TILTYARD_CONTROLPLANE_{k}": v for k, v in env.items()})


def test_everything_can_be_set(tmp_path: Path) -> None:
    text = 'regions = ["eu"]\nstart_timeout = 3\nlog_level = "debug"\n'
    text += '[[registries]]\nname = "r"\naddress = "h:1"\naliases = ["x.example"]\n' + AGENT
    environment = {"START_TIMEOUT": "4.5", "STATE_DIR": "/s", "START_BURST": "7"}
    config = load(tmp_path, text, BEHIND_PROXY="10.0.0.0/8,fd00::/8", **environment)
    assert config.behind_proxy == ("10.0.0.0/8", "fd00::/8")
    assert config.start_timeout == 4.5
    assert config.state_dir == Path("/s")
    assert config.start_burst == 7
    assert config.registries == (RegistryConfig(name="r", address="h:1", aliases=("x.example",)),)
    assert config.agents == (AgentConfig(name="a", address="unix:/a.sock", region="eu"),)
    assert config.log_level == "debug"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start_rate = true", "start_rate: must not be true or false"),
        ("start_rate = nan", "start_rate: "),
        ("start_timeout = 1", "start_timeout"),
        ("lost_after = 30", "lost_after: must be more than unreachable_after, which is 30"),
        (
            "unreachable_after = 90000",
            "lost_after: must be more than unreachable_after, which is 90000",
        ),
        (
            "unresponsive_after = 90000",
            "lost_after: must be more than unresponsive_after, which is 90000",
        ),
        ("start_burst = 1.5", "start_burst"),
        ("regions = [1]", "regions"),
        ("agents = 1", "agents"),
        ('enrol_listen = "example.org:7443"', "enrol_listen"),
        ("ended_retention_days = 36501", "ended_retention_days"),
        ("latency_interval = 0.5", "latency_interval"),
        ('state_dir = "state"', "state_dir: must be an absolute path"),
        ('api_listen = "0.0.0.0:80"', "loopback"),
        ('api_listen = "example.org:80"', "api_listen"),
        ('api_listen = "127.0.0.1"', "api_listen"),
        ('metrics_listen = "7446"', "metrics_listen"),
        (f'metrics_listen = ":{"7" * 5000}"', "the port must be at most 65535"),
        ('tls_certificate = "/chain"', "tls_certificate: goes together with tls_key"),
        ('behind_proxy = ["10.0.0.1/8"]', "behind_proxy"),
        ('behind_proxy = [""]', "behind_proxy"),
        ('behind_proxy = ["0.0.0.0/0"]', "0.0.0.0/0 must be at most a /"),
        ('behind_proxy = ["::/0"]', "::/0 must be at most a /"),
        ('behind_proxy = ["10.0.0.0/7"]', "10.0.0.0/7 must be at most a /"),
        ('behind_proxy = ["104.0.0.0/11"]', "104.0.0.0/11 must be at most a /12"),
        ('behind_proxy = ["2606::/16"]', "2606::/16 must be at most a /28"),
        ('state_dir = "/"', "state_dir: must be a folder of its own"),
        (AGENT, "agents[0].region: unknown region 'eu'"),
        ('regions = ["eu"]\n' + AGENT + 'node_pool = "x"', "unknown node pool 'x'"),
        ('regions = ["eu"]\n' + AGENT.replace("unix:", "host:"), "must have the form unix:/path"),
        (REGISTRY.replace('"r"', '"a b"'), "registries: must be"),
        (REGISTRY + 'aliases = ["h/x"]', "registries[0].aliases"),
        (
            'regions = ["eu"]\n' + AGENT.replace('"a"', '"init"'),
            "agents[0].name: 'init' is a reserved name",
        ),
        ('regions = ["eu"]\n' + AGENT.replace('"a"', '"a/b"'), "agents: must be"),
        ('regions = ["eu"]\n' + AGENT + AGENT, "agents: 'a' is listed twice"),
        ('regions = ["eu", "us", "eu"]', "regions: 'eu' is listed twice"),
        ('host_network_pools = ["a"]', "host_network_pools: unknown node pool 'a'"),
        (REGISTRY + REGISTRY.replace("h:1", "g:1"), "registries: 'r' is listed twice"),
        (REGISTRY + REGISTRY.replace('"r"', '"s"'), "registries: 'h:1' is listed twice"),
        (
            REGISTRY + REGISTRY.replace('"r"', '"s"').replace('"h:1"', '"g:1"\naliases = ["H:1"]'),
            "registries: 'h:1' is listed twice",
        ),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        load(tmp_path, text)


def test_a_port_that_is_taken_is_reported_in_one_line(
    settings: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = settings.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}")
        settings.write_text(f'failpoint = "start.answered:hang"\n{listen}')
        result = CliRunner().invoke(main, ["serve", "--config", str(settings)])
    assert result.exit_code == 1
    last = result.output.splitlines()[-1]
    assert last.startswith(f"Error: api_listen: cannot listen on port {port} of 127.0.0.1: ")
    assert "Traceback" not in result.output
    warning = 'level=warning event="a failpoint is active" name=start.answered:hang'
    assert warning in capfd.readouterr().err


def test_a_database_of_a_newer_program_is_not_tried_again(settings: Path) -> None:
    state = settings.parent / "state"
    state.mkdir()
    with contextlib.closing(sqlite3.connect(state / "controlplane.db")) as database:
        database.execute("PRAGMA user_version=99")
    result = CliRunner().invoke(main, ["serve", "--config", str(settings)])
    assert result.exit_code == 78  # systemd starts it no more
    assert result.output.count("\n") == 1
    assert "controlplane.db: its schema 99 is newer than 1" in result.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_makes_what_it_lacks_and_ends_on_a_signal(
    settings: Path, number: signal.Signals
) -> None:
    with a_manager(str(settings.with_name("notify"))) as manager:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "controlplane",
            "serve",
            "--config",
            str(settings),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ".", "NOTIFY_SOCKET": manager.address},
        )
        assert process.stderr is not None
        log = ""
        while "event=listening address=" not in log:
            line = await process.stderr.readline()
            assert line, log
            log += line.decode()
        assert await manager.next() == "READY=1"
        path = settings.parent / "state" / "initial-tokens.json"
        tokens = json.loads(path.read_text())
        assert str(path) in log
        assert "ty_" not in log
        url = log.rpartition("event=listening address=")[2].split()[0] + "/session"
        headers = {"Authorization": f"Bearer {tokens['accounts']['default']}"}
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
            assert await response.json() == {"sessions": []}
        process.send_signal(number)
        assert await manager.next() == "STOPPING=1"
        await process.stderr.read()
        assert await process.wait() == 0


SLOW = ("aiohttp", "controlplane.app.control_plane", "grpc", "pydantic", "sqlite_utils")
LOADED = f"""
import sys
from controlplane.cli.main import main
main(sys.argv[1:], standalone_mode=False)
print(*(name for name in {SLOW} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["--help", "serve --help", "account list --help"])
async def test_help_waits_for_nothing_that_it_does_not_need(command: str) -> None:
    assert await _loaded(command) == []


async def test_a_command_of_operators_needs_no_server(tmp_path: Path) -> None:
    async with StubApi() as api:
        command = f"region create eu --url {api.url} --token-file {api.token_file(tmp_path)}"
        assert await _loaded(command) == ["aiohttp"]
        assert api.requests == [("PUT", "/operator/region/eu", None)]


async def _loaded(command: str) -> list[str]:
    """Run a command; give what it imported of what takes long."""
    status, _, loaded = await finished(sys.executable, "-c", LOADED, *command.split())
    assert status == 0, loaded
    return loaded.split()
