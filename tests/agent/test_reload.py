"""Settings that an agent takes while it runs: by its parts, and by SIGHUP to the process."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.app.daemon import Daemon
from agent.app.reload import RELOADABLE, load_settings
from agent.domain.errors import NoCapacity
from agent.domain.session import MEBIBYTE, Resources
from agent.settings.model import AgentConfig
from tests.agent.hosts import nobody_else
from tests.agent.tls_players import issue
from tests.certificates import Signer
from tests.fakes import FakeEngine
from tests.harness import AgentProcess, to_toml
from tests.settings.files import hang_up
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.runtime.clock import SystemClock
from tiltyard.runtime.supervision import Supervision

DEADLINE = 20.0
AUTHORITY = Signer.new()
CLOCK = SystemClock()


class Running:
    """An agent in this process, and the file that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "agent.toml"
        self.settings: dict[str, Any] = {
            "state_dir": str(folder / "state"),
            "socket": str(folder / "run" / "agent.sock"),
            "public_address": "127.0.0.1",
            "metrics_listen": "",
            "firewall_bridges": [],
            "cpu": 4,
            "ram": 1024,
        }
        self.manager = folder / "notify"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.path.write_text(to_toml(self.settings))
        config = (await asyncio.to_thread(load_settings, self.path)).config
        self.daemon = Daemon(
            config,
            FakeEngine(),
            CLOCK,
            nobody_else,
            Supervision(str(self.manager)) if self.manager.exists() else None,
            load=lambda: load_settings(self.path),
        )
        before = logging.getLogger().level
        work = asyncio.create_task(self.daemon.run(), name="agent")
        await self.daemon.serving.wait()
        try:
            async with grpc.aio.insecure_channel(f"unix:{config.socket}") as channel:
                self.stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
                yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            logging.getLogger().setLevel(before)

    async def change(self, **settings: Any) -> None:
        self.settings |= settings
        self.path.write_text(to_toml(self.settings))
        await self.daemon._reloader.reload()

    async def host(self) -> Any:
        return (await self.stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).host


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path)
    async with running.serving():
        yield running


def _changes(folder: Path) -> dict[str, tuple[Any, Callable[[Daemon], object], object]]:
    """For each key, another value, and where it arrives as what."""
    policy = folder / "policy.toml"
    policy.write_text("max_cpu = 1\n")
    files = issue(AUTHORITY, folder)

    def host(daemon: Daemon) -> Any:
        return daemon._parts.host

    def files_of(daemon: Daemon) -> Any:
        return daemon._tls_ports._certificate and daemon._tls_ports._certificate.files

    return {
        "latency_addresses": (["192.0.2.7"], lambda d: d._config.pinged(), ("192.0.2.7",)),
        "firewall_blocked": (
            ["192.0.2.0/24"],
            lambda d: [str(each) for each in d._firewall.firewall._plan.blocked],
            ["192.0.2.0/24"],
        ),
        "firewall_allowed": (
            ["192.0.2.1:53/udp"],
            lambda d: [each.port for each in d._firewall.firewall._plan.allowed],
            [53],
        ),
        "cpu": (2, lambda d: host(d).capacity.total.nano_cpus, 2 * 10**9),
        "ram": (512, lambda d: host(d).capacity.total.memory_bytes, 512 * MEBIBYTE),
        "policy": (
            str(policy),
            lambda d: (host(d).policy.max_cpu, d._images.policy.max_cpu),
            (1, 1),
        ),
        "tls_certificate": (str(files.certificate), files_of, files),
        "tls_key": (str(files.key), files_of, files),
        "max_sessions": (7, lambda d: host(d).capacity.max_sessions, 7),
        "start_slots": (3, lambda d: host(d).start_slots.slots, 3),
        "stop_grace": (0.5, lambda d: host(d).settings.stop_grace, 0.5),
        "disk_reserve": (1, lambda d: host(d).disks.reserve_bytes, MEBIBYTE),
        "session_disk": (1, lambda d: host(d).settings.session_disk_bytes, MEBIBYTE),
        "container_retention_hours": (1, lambda d: d._reconciler.rules.container_seconds, 3600),
        "log_retention_days": (1, lambda d: d._reconciler.rules.log_seconds, 86400),
        "log_level": ("error", lambda _: logging.getLogger().level, logging.ERROR),
    }


async def test_every_key_that_is_reloaded_arrives_where_it_counts(running: Running) -> None:
    changes = _changes(running.folder)
    assert changes.keys() == RELOADABLE
    before = {key: arrived(running.daemon) for key, (_, arrived, _) in changes.items()}
    assert all(before[key] != expected for key, (_, _, expected) in changes.items())
    await running.change(**{key: value for key, (value, _, _) in changes.items()})
    for key, (_, arrived, expected) in changes.items():
        assert arrived(running.daemon) == expected, key
    assert running.daemon._reloader.warnings == ()


async def test_the_host_tells_what_it_lends_from_then_on(running: Running) -> None:
    await running.change(cpu=2, max_sessions=5)
    host = await running.host()
    assert host.capacity.nano_cpus == 2 * 10**9
    assert host.free_sessions == 5


async def test_a_defect_in_one_key_takes_none(running: Running) -> None:
    def broken(_: AgentConfig) -> Resources:
        raise OverflowError

    running.daemon._parts = dataclasses.replace(running.daemon._parts, lent=broken)
    await running.change(max_sessions=5, stop_grace=1, log_level="error")
    assert (await running.host()).free_sessions == 1000
    assert running.daemon._parts.host.settings.stop_grace == 10
    assert "by a defect" in running.daemon._reloader.warnings[0]


async def test_sessions_keep_what_they_have_when_the_host_lends_less(running: Running) -> None:
    capacity = running.daemon._parts.host.capacity
    held, one = Resources(3 * 10**9, 512 * MEBIBYTE), Resources(10**9, MEBIBYTE)
    capacity.reserve("a", held)
    await running.change(cpu=2)
    assert capacity.reserved == held
    with pytest.raises(NoCapacity):
        capacity.reserve("b", one)
    capacity.release("a")
    capacity.reserve("b", one)


async def test_a_mistake_changes_nothing_and_shows_until_it_is_mended(running: Running) -> None:
    await running.change(cpu=2, max_sesions=5)
    host = await running.host()
    assert host.capacity.nano_cpus == 4 * 10**9
    [told] = [each for each in host.warnings if "settings" in each]
    assert "agent.toml:8: max_sesions: unknown key" in told
    del running.settings["max_sesions"]
    await running.change()
    host = await running.host()
    assert host.capacity.nano_cpus == 2 * 10**9
    assert not [each for each in host.warnings if "settings" in each]


async def test_who_watches_is_told_of_a_mistake(running: Running) -> None:
    running.path.write_text("= no TOML")
    watch = running.stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
    async for message in watch:
        if message.HasField("snapshot_end"):
            running.daemon.reload()
        elif any("was not taken" in each for each in message.host.warnings):
            break
    watch.cancel()


async def test_what_needs_a_restart_is_told_and_stays(running: Running) -> None:
    await running.change(port_range="30000-30010", cpu=2)
    host = await running.host()
    assert host.capacity.nano_cpus == 2 * 10**9
    assert (host.port_range_first, host.port_range_last) == (20000, 30000)
    [told] = [each for each in host.warnings if "settings" in each]
    assert told.endswith("needs a restart: port_range")


async def test_a_policy_that_says_something_else_under_its_name_is_taken(running: Running) -> None:
    policy = running.folder / "policy.toml"
    policy.write_text("max_cpu = 1\n")
    await running.change(policy=str(policy))
    policy.write_text("max_cpu = 2\n")
    await running.change()
    assert running.daemon._parts.host.policy.max_cpu == 2
    policy.write_text("max_cpu = 0\n")
    await running.change()
    assert running.daemon._parts.host.policy.max_cpu == 2
    assert f"{policy}:1: max_cpu: " in running.daemon._reloader.warnings[0]


async def test_the_last_good_certificate_stays_until_the_next_is(running: Running) -> None:
    first = issue(AUTHORITY, running.folder)
    await running.change(tls_certificate=str(first.certificate), tls_key=str(first.key))
    ports = running.daemon._tls_ports
    await ports.look()
    assert ports.available
    absent = str(running.folder / "absent.pem")
    await running.change(tls_certificate=absent, tls_key=absent)
    await ports.look()
    assert ports.available
    assert any("the last one stays in use" in each for each in ports.warnings)
    await running.change(tls_certificate=str(first.certificate), tls_key=str(first.key))
    await ports.look()
    assert ports.warnings == ()


async def test_a_service_manager_is_told_when_it_begins_and_when_it_is_done(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(running.manager))
        heard.setblocking(False)
        loop = asyncio.get_running_loop()
        async with running.serving():
            assert await loop.sock_recv(heard, 1024) == b"READY=1"
            running.daemon.reload()
            begun = await loop.sock_recv(heard, 1024)
            assert begun.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert await loop.sock_recv(heard, 1024) == b"READY=1"


# -- the process -------------------------------------------------------------------------------


@pytest.fixture
def process(tmp_path: Path) -> Iterator[AgentProcess]:
    # Without an engine: nothing here needs one.
    with AgentProcess(tmp_path / "none.sock", cpu=4, ram=1024) as process:
        yield process


def _told(process: AgentProcess, *commands: str) -> Any:
    command = [sys.executable, "-m", "agent", *commands, "--socket", str(process.socket), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE)
    return json.loads(done.stdout)


def test_a_process_reloads_on_sighup_whatever_is_in_the_file(process: AgentProcess) -> None:
    good = process.config.read_text()
    hang_up(process, "= no TOML", 'event="settings not taken"')
    hang_up(process, good.replace("cpu = 4", "cpu = -1"), 'event="settings not taken"')
    assert _told(process, "status")["host"]["capacity"]["nano_cpus"] == "4000000000"
    for _ in range(100):
        os.kill(process.process.pid, signal.SIGHUP)
    changed = good.replace("cpu = 4", "cpu = 2") + 'port_range = "30000-30001"\n'
    hang_up(process, changed, 'event="settings reloaded" keys=cpu')
    told = _told(process, "status")
    assert told["host"]["capacity"]["nano_cpus"] == "2000000000"
    assert any(each.endswith("needs a restart: port_range") for each in told["host"]["warnings"])


def test_the_keys_that_are_reloaded_are_keys() -> None:
    assert AgentConfig.model_fields.keys() > RELOADABLE
