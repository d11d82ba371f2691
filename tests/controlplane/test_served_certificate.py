"""The API's certificate while serving: renewed, and replaced file by file."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controlplane.http.certificate import LOOK_SECONDS, ServedCertificate
from controlplane.settings.model import Config
from tests.support.certificates import SERVES, self_signed
from tests.support.controlplane.system import System
from tests.support.fake_clock import FakeClock


@dataclass
class Files:
    """A certificate and its key."""

    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        return {name: str(self.folder / f"{name}.pem") for name in ("tls_certificate", "tls_key")}

    def make(self) -> bytes:
        """Make and return another certificate."""
        made = self_signed(SERVES, hosts=("localhost", "127.0.0.1"))
        Path(self.settings["tls_certificate"]).write_bytes(made.certificate)
        Path(self.settings["tls_key"]).write_bytes(made.key)
        return ssl.PEM_cert_to_DER_cert(made.certificate.decode())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Tls(System):
    """A system whose certificate is in files; clients do not verify it."""

    async def call(self, method: str, path: str, **more: Any) -> Any:
        return await super().call(method, path, **{"ssl": False, **more})


@pytest.fixture
async def system(tmp_path: Path, files: Files) -> AsyncIterator[Tls]:
    files.make()
    async with Tls(tmp_path, **files.settings) as system:
        yield system


async def _connected(system: System) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    client = ssl.create_default_context()
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", system.port, ssl=client)
    return reader, writer, writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


async def test_changed_files_are_reloaded(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files.make()
    clock = FakeClock()
    served = ServedCertificate(Config(**files.settings), clock)
    await served.open()
    running = asyncio.create_task(served.run(), name="certificate")
    files.make()
    await clock.advance(LOOK_SECONDS)
    assert caplog.messages == ["the API has a new certificate"]
    running.cancel()
    await served.close()


async def test_files_that_change_while_they_are_read_are_read_again(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files.make()
    served = ServedCertificate(Config(**files.settings), FakeClock())
    load = Config.tls_context

    def renewed_meanwhile(config: Config) -> ssl.SSLContext | None:
        context = load(config)
        files.make()
        return context

    monkeypatch.setattr(Config, "tls_context", renewed_meanwhile)
    await served.open()
    monkeypatch.undo()
    await served.look()
    assert caplog.messages == ["the API has a new certificate"]
    await served.look()
    assert caplog.messages == ["the API has a new certificate"]
    await served.close()


async def _shown(system: System) -> bytes:
    """Return the certificate of a new connection."""
    _, writer, certificate = await _connected(system)
    writer.close()
    return certificate


async def test_new_connections_have_a_renewed_certificate_and_old_ones_go_on(
    system: Tls, files: Files
) -> None:
    reader, writer, first = await _connected(system)
    second = files.make()
    assert first != second
    await system.control_plane.certificate.look()
    assert await _shown(system) == second
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_last_valid_certificate_stays_until_the_next_valid_one(
    system: Tls, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    valid = files.make()
    await system.control_plane.certificate.look()
    key = Path(files.settings["tls_key"])
    for damage in (key.unlink, lambda: key.write_text("")):
        files.make()
        damage()
        for _ in range(2):
            await system.control_plane.certificate.look()
        assert await _shown(system) == valid
    assert caplog.text.count("cannot use the new certificate") == 2
    last = files.make()
    await system.control_plane.certificate.look()
    assert await _shown(system) == last
