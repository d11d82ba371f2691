"""The settings file and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from controlplane.cli.main import main
from controlplane.config import AgentConfig, Config, load_config
from controlplane.errors import ConfigError
from controlplane.registry_settings import RegistryConfig
from tests.controlplane.stub_api import StubApi

AGENT = '[[agents]]\nname = "a"\naddress = "unix:/a.sock"\nregion = "eu"\n'
REGISTRY = '[[registries]]\nname = "r"\naddress = "h:1"\n'


def load(tmp_path: Path, text: str, **env: str) -> Config:
    path = tmp_path / "controlplane.toml"
    path.write_text(text)
    return load_config(path, {f"TILTYARD_CONTROLPLANE_{k}": v for k, v in env.items()})


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Config()


def test_everything_can_be_set(tmp_path: Path) -> None:
    text = 'regions = ["eu"]\nstart_timeout = 3\nlog_level = "debug"\n'
    text += '[[registries]]\nname = "r"\naddress = "h:1"\naliases = ["x.example"]\n' + AGENT
    config = load(tmp_path, text, START_TIMEOUT="4.5", STATE_DIR="/s", START_BURST="7")
    assert (config.start_timeout, config.state_dir, config.start_burst) == (4.5, Path("/s"), 7)
    assert config.registries == (RegistryConfig("r", "h:1", ("x.example",)),)
    assert config.agents == (AgentConfig("a", "unix:/a.sock", "eu"),)
    assert config.log_level == "debug"


@pytest.mark.parametrize(
    ("text", "env", "message"),
    [
        ("colour = 1", {}, "unknown key 'colour'"),
        ("", {"COLOUR": "1"}, "COLOUR"),
        ("", {"REGIONS": "eu"}, "REGIONS"),
        ("start_burst = 1.5", {}, "start_burst"),
        ('start_rate = "x"', {}, "start_rate"),
        ("start_rate = true", {}, "start_rate"),
        ("start_rate = nan", {}, "start_rate"),
        ("", {"START_RATE": "x"}, "START_RATE"),
        ("start_rate = 0", {}, "start_rate"),
        ("start_timeout = 1", {}, "start_timeout"),
        ('log_level = "loud"', {}, "log_level"),
        ('api_listen = "0.0.0.0:80"', {}, "loopback"),
        ('api_listen = "example.org:80"', {}, "api_listen"),
        ('api_listen = "127.0.0.1"', {}, "api_listen"),
        ('api_listen = "127.0.0.1:70000"', {}, "api_listen"),
        ('enrol_listen = "example.org:7443"', {}, "enrol_listen"),
        ('enrol_listen = ":port"', {}, "enrol_listen"),
        ("regions = [1]", {}, "regions"),
        ("agents = 1", {}, "agents"),
        (AGENT, {}, "unknown region 'eu'"),
        ('regions = ["eu"]\n' + AGENT + 'node_pool = "x"', {}, "unknown node pool 'x'"),
        ('regions = ["eu"]\n' + AGENT + 'colour = "x"', {}, "colour"),
        ('regions = ["eu"]\n' + AGENT.replace("unix:/", "h:"), {}, "unix:/path"),
        ('[[registries]]\nname = "r"', {}, "address"),
        ('regions = ["a b"]', {}, "regions: must be 1 to 128 of"),
        ('node_pools = ["a/b"]', {}, "node_pools: must be 1 to 128 of"),
        ('[[registries]]\nname = "a b"\naddress = "h:1"', {}, "registries.name"),
        ('[[registries]]\nname = "r"\naddress = "http://h"', {}, "must be host[:port]"),
        (
            '[[registries]]\nname = "r"\naddress = "h:1"\naliases = ["h/x"]',
            {},
            "registries.aliases",
        ),
        ('regions = [".."]', {}, "regions: must be 1 to 128 of"),
        ('node_pools = ["-x"]', {}, "begin with a letter or a digit"),
        ('regions = ["eu"]\n' + AGENT.replace('"a"', '"a/b"'), {}, "agents.name: must be"),
        *(
            ('regions = ["eu"]\n' + AGENT.replace('"a"', f'"{name}"'), {}, f"agents.{name}: is a")
            for name in ("init", "controlplane")
        ),
        ('regions = ["eu", "us", "eu"]', {}, "regions: 'eu' is there twice"),
        ('node_pools = ["a", "a"]', {}, "node_pools: 'a' is there twice"),
        ('regions = ["eu"]\n' + AGENT + AGENT, {}, "agents.name: 'a' is there twice"),
        (REGISTRY + REGISTRY.replace('"h:1"', '"g:1"'), {}, "registries.name: 'r' is there twice"),
        (REGISTRY + REGISTRY.replace('"r"', '"s"'), {}, "registries: 'h:1' is there twice"),
        (
            REGISTRY + REGISTRY.replace('"r"', '"s"').replace('"h:1"', '"g:1"\naliases = ["H:1"]'),
            {},
            "registries: 'h:1' is there twice",
        ),
        ("not toml", {}, "cannot read"),
    ],
)
def test_a_bad_file_is_refused(
    tmp_path: Path, text: str, env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(tmp_path, text, **env)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "controlplane.toml"
    listen = 'api_listen = "127.0.0.1:0"\nenrol_listen = ""\n'
    path.write_text(f'state_dir = "{tmp_path}/state"\n{listen}')
    return path


def _run(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments)


def test_init_prints_each_token_once(settings: Path) -> None:
    first = json.loads(_run("init", "--config", str(settings), "--json").output)
    assert set(first["accounts"]) == {"default"}
    assert first["operator_token"].startswith("ty_")
    more = ("init", "--config", str(settings), "--account", "default", "--account", "x", "--json")
    second = json.loads(_run(*more).output)
    assert set(second["accounts"]) == {"x"}
    assert second["operator_token"] is None
    assert "everything is there" in _run("init", "--config", str(settings)).output


def test_config_check(settings: Path) -> None:
    assert _run("config", "check", "--config", str(settings)).exit_code == 0
    settings.write_text("colour = 1")
    bad = _run("config", "check", "--config", str(settings))
    assert (bad.exit_code, bad.output) == (1, "Error: unknown key 'colour'\n")


def test_a_state_that_cannot_be_used_is_told(settings: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    for command in ("init", "serve"):
        result = _run(command, "--config", str(settings))
        assert result.exit_code == 1
        assert "Error: cannot open" in result.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_makes_what_it_lacks_and_ends_on_a_signal(
    settings: Path, number: signal.Signals
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controlplane", "serve", "--config", str(settings)),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "protos"},
    )
    assert process.stderr is not None
    log = ""
    while "listening on" not in log:
        line = await process.stderr.readline()
        assert line, log
        log += line.decode()
    path = settings.parent / "state" / "initial-tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    tokens = json.loads(path.read_text())
    assert str(path) in log
    assert "ty_" not in log
    url = log.rpartition("listening on ")[2].strip() + "/session"
    headers = {"Authorization": f"Bearer {tokens['accounts']['default']}"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        assert await response.json() == {"sessions": []}
    process.send_signal(number)
    await process.stderr.read()
    assert await process.wait() == 0


SLOW = ("aiohttp", "controlplane.app", "grpc", "pydantic", "sqlite_utils")
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
        token = str(api.token_file(tmp_path))
        command = f"region create eu --url {api.url} --token-file {token}"
        assert await _loaded(command) == ["aiohttp"]
        assert api.requests == [("PUT", "/operator/region/eu", None)]


async def _loaded(command: str) -> list[str]:
    """Run a command; give what it imported of what takes long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOADED, *command.split()),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "protos:."},
    )
    _, loaded = await process.communicate()
    assert process.returncode == 0, loaded
    return loaded.decode().split()
