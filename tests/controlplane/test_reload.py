"""Settings that the control plane takes while it serves: by its parts, and by SIGHUP."""

import asyncio
import logging
import os
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import enrolling
from controlplane.app.control_plane import ControlPlane
from controlplane.app.reload import RELOADABLE, Settings, load_settings
from controlplane.domain.errors import ConfigError
from controlplane.http.certificate import Certificate
from controlplane.metrics_endpoint import listener
from controlplane.settings.model import Config
from tests.controlplane.system import System
from tests.harness import ControlPlaneProcess, to_toml
from tests.settings.files import hang_up

OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    " -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
)
CHANGES: dict[str, tuple[Any, Callable[[ControlPlane], object], object]] = {
    "max_connections": (7, lambda c: c._listeners._api and c._listeners._api._bounds.total, 7),
    "max_connections_per_address": (
        6,
        lambda c: c._listeners._api and c._listeners._api._bounds.per_address,
        6,
    ),
    "start_timeout": (3.0, lambda c: c._starts.start_timeout, 3.0),
    "start_rate": (2.0, lambda c: c._starts.rate.rate, 2.0),
    "start_burst": (9, lambda c: c._starts.rate.burst, 9),
    "max_waiting_starts": (11, lambda c: c._queue.max_waiting, 11),
    "placement_silence": (4.0, lambda c: c.fleet.placement_silence, 4.0),
    "unreachable_after": (20.0, lambda c: c.fleet.unreachable_after, 20.0),
    "ended_retention_days": (
        2,
        lambda c: (c._upkeep._kept["ended sessions"].days, c._stores.reports._keep_ended_ms),
        (2, timedelta(days=2) // timedelta(milliseconds=1)),
    ),
    "audit_retention_days": (3, lambda c: c._upkeep._kept["the audit"].days, 3),
    "max_image_bytes": (1000, lambda c: c._registry.max_image_bytes, 1000),
    "log_level": ("error", lambda _: logging.getLogger().level, logging.ERROR),
}
"""For each key, another value, and where it arrives as what."""


@pytest.fixture
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.mark.usefixtures("level")
async def test_every_key_that_is_reloaded_arrives_where_it_counts(tmp_path: Path) -> None:
    assert CHANGES.keys() | {"tls_certificate", "tls_key"} == RELOADABLE
    async with System(tmp_path) as system:
        plane = system.control_plane
        before = {key: arrived(plane) for key, (_, arrived, _) in CHANGES.items()}
        assert all(before[key] != expected for key, (_, _, expected) in CHANGES.items())
        settings = Settings(system.config, None)
        plane.take(settings.merged({key: value for key, (value, _, _) in CHANGES.items()}))
        for key, (_, arrived, expected) in CHANGES.items():
            assert arrived(plane) == expected, key


async def test_a_rate_counts_from_the_next_start_on(tmp_path: Path) -> None:
    async with System(tmp_path, start_rate=0.001, start_burst=1) as system:
        image = await system.make_application()
        assert image
        body = {"location": "local", "image": "game"}
        answers = [await system.call("POST", "/session", json=body) for _ in range(2)]
        assert [answer.status for answer in answers] == [201, 420]
        quick = replace(system.config, start_rate=1000.0, start_burst=1000)
        system.control_plane.take(Settings(quick, None))
        await asyncio.sleep(0)
        assert (await system.call("POST", "/session", json=body)).status == 201


async def test_more_connections_are_given_files_besides_those_of_other_listeners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("controlplane.http.listeners.allow_files", asked.append)
    listeners: Any = {"enrol_listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0"}
    async with System(tmp_path, **listeners) as system:
        more = replace(system.config, max_connections=system.config.max_connections + 1000)
        system.control_plane.take(Settings(more, None))
    begun, then = asked
    assert begun == system.config.max_connections + enrolling.BOUNDS.total + listener.BOUNDS.total
    assert then - begun == 1000


# -- the certificate ---------------------------------------------------------------------------


@dataclass
class Files:
    """A certificate and its key."""

    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        return {name: str(self.folder / f"{name}.pem") for name in ("tls_certificate", "tls_key")}

    def make(self) -> bytes:
        """Make another, and give it."""
        names = self.settings
        files = ["-out", names["tls_certificate"], "-keyout", names["tls_key"]]
        subprocess.run([*OPENSSL.split(), *files], check=True, capture_output=True)
        return ssl.PEM_cert_to_DER_cert(Path(names["tls_certificate"]).read_text())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def _connected(system: System) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    port = int(system.control_plane.base_url.rpartition(":")[2])
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return reader, writer, shown


class Tls(System):
    """A system whose certificate is in files; nobody verifies it here."""

    async def call(self, method: str, path: str, **more: Any) -> Any:
        return await super().call(method, path, **{"ssl": False, **more})


@pytest.fixture
async def system(tmp_path: Path, files: Files) -> AsyncIterator[Tls]:
    await asyncio.to_thread(files.make)
    async with Tls(tmp_path, **files.settings) as system:
        yield system


async def test_another_certificate_is_for_new_connections(system: Tls, files: Files) -> None:
    reader, writer, first = await _connected(system)
    second = await asyncio.to_thread(files.make)
    assert first != second
    certificate = await asyncio.to_thread(Certificate.of, system.config)
    system.control_plane.take(Settings(system.config, certificate))
    _, new, shown = await _connected(system)
    assert shown == second
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    for each in (writer, new):
        each.close()


async def test_a_certificate_without_its_key_changes_nothing(tmp_path: Path, files: Files) -> None:
    def made() -> None:
        files.make()
        path = tmp_path / "controlplane.toml"
        path.write_text(to_toml(files.settings))
        settings = load_settings(path)
        assert settings.values() == load_settings(path).values()
        (tmp_path / "tls_key.pem").write_text("")
        with pytest.raises(ConfigError, match=rf"{path}:1: tls_certificate: cannot load"):
            load_settings(path)
        files.make()
        assert settings.values() != load_settings(path).values()

    await asyncio.to_thread(made)


def test_a_certificate_that_comes_while_one_is_read_is_another(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.make()
    config, load = Config(**files.settings), Config.tls_context

    def renewed(config: Config) -> ssl.SSLContext | None:
        context = load(config)
        files.make()
        return context

    monkeypatch.setattr(Config, "tls_context", renewed)
    before = Certificate.of(config)
    monkeypatch.undo()
    assert before != Certificate.of(config)


def test_tls_begins_and_ends_at_a_restart_alone(files: Files) -> None:
    files.make()
    with_tls = Config(**files.settings)
    settings, plain = Settings(with_tls, Certificate.of(with_tls)), Settings(Config(), None)
    for one, other in ((settings, plain), (plain, settings)):
        keys = ("tls_certificate", "tls_key")
        changes = {key: other.values()[key] for key in keys}
        with pytest.raises(ConfigError, match="does not begin or end while it serves"):
            one.merged(changes)


def test_what_does_not_fit_what_stays_is_refused() -> None:
    settings = Settings(Config(lost_after=60.0), None)
    with pytest.raises(ConfigError, match="lost_after"):
        settings.merged({"unreachable_after": 100.0})


# -- the process -------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[ControlPlaneProcess]:
    with ControlPlaneProcess([], {}) as process:
        yield process


def test_a_process_reloads_on_sighup_whatever_is_in_the_file(process: ControlPlaneProcess) -> None:
    good = process.config.read_text()
    hang_up(process, "= no TOML", 'event="settings not taken"')
    hang_up(process, "start_rate = 0\n" + good, "start_rate: must be more than 0")
    for _ in range(100):
        os.kill(process.process.pid, signal.SIGHUP)
    changed = 'failpoint = "stop.written:kill"\nstart_rate = 3\n' + good
    hang_up(process, changed, 'event="settings reloaded" keys=start_rate')
    log = process.process.log.read_text()
    assert 'event="changed settings need a restart" keys=failpoint' in log
    assert process.client().get("/session").expect(200).json() == {"sessions": []}
