"""Known secrets through every route, rightly and wrongly: where they may be found afterwards.

A token's secret is shown once, to its maker; the database has a hash of it and nothing else has
anything. A session's own variables go to its host and nowhere else, and the password of a registry
to that registry.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.settings.model import Config
from controlplane.settings.registries import RegistryConfig
from tests.controlplane.canary import (
    ENV,
    FILE_PASSWORD,
    KEPT,
    STRAY,
    Secret,
    Tour,
    check_database,
    check_files,
    found_in,
)
from tests.controlplane.quoting_registry import QuotingRegistry
from tests.fuzz.templates import REGISTRY_PASSWORD
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.fake_registry import FakeRegistry
from tests.support.controlplane.system import System
from tests.support.harness import AgentSpec, ControlPlaneProcess
from tests.support.log_lines import logfmt
from tiltyard.runtime.logging.output import LineFormatter

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class Records(logging.Handler):
    """Keeps what every logger says: as it is, and as the program writes it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.plain: list[str] = []
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.plain.append(logging.Formatter(FORMAT).format(record))
        self.written.append(LineFormatter("logfmt", journald=False).format(record))


@pytest.fixture
def records() -> Iterator[Records]:
    """Every record of every logger."""
    root, handler = logging.getLogger(), Records()
    every = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    before = [(logger, logger.level) for logger in (root, *every)]
    for logger in every:
        logger.setLevel(logging.NOTSET)
    root.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for logger, level in before:
        logger.setLevel(level)


class Quoted(System):
    """Declares a registry that quotes the password of each login."""

    def __init__(self, folder: Path, quoting: QuotingRegistry) -> None:
        super().__init__(folder)
        self._quoting = quoting

    @property
    def config(self) -> Config:
        found, address = super().config, self._quoting.address
        login = {"username": "robot", "password": FILE_PASSWORD}
        entry = RegistryConfig(name="quoting", address=address).model_copy(update=login)
        return found.model_copy(update={"registries": (*found.registries, entry)})


@pytest.mark.timeout(120)
async def test_secrets_are_where_they_are_meant_to_be_and_nowhere_else(
    tmp_path: Path, records: Records
) -> None:
    async with QuotingRegistry() as quoting, Quoted(tmp_path, quoting) as system:
        system.registry.push("studio/game", "v1")
        tokens = system.tokens | {"operator": system.operator_token}
        tour = Tour(system.control_plane.base_url, tokens)
        await tour.go()
        secrets = tour.secrets
        tour.check_answers()
        assert any(ENV in request.spec.env.values() for request in system.agent.started)
        check_database(system.config.database, secrets)
        await system.nothing_is_left()
        await system.stop_serving()
        check_database(system.config.database, secrets)
        assert set(quoting.heard.values()) == {FILE_PASSWORD, REGISTRY_PASSWORD}
    said = "\n".join(records.plain).encode()
    found_in(said, secrets, "the log, before it is redacted")
    written = "\n".join(records.written).encode()
    found_in(written, [*secrets, Secret(STRAY)], "the log")
    assert Secret(STRAY).is_in(said), "no record quotes what is sent: the log proves nothing"
    assert b"[redacted]" in written
    assert {logfmt(line)["level"] for line in records.written} >= {"debug", "info"}


class FirstStart(ControlPlaneProcess):
    """Started without `init`, so that it leaves the first tokens in a file."""

    def _init(self) -> None:
        """Leave it to `serve`."""


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_the_process_tells_nobody_either(tmp_path: Path) -> None:
    registry, agent = FakeRegistry(), FakeAgent(tmp_path, "a0")
    await registry.start()
    await agent.start()
    registry.push("studio/game", "v1")
    async with QuotingRegistry() as quoting:
        part = FirstStart(
            [AgentSpec(agent.name, agent.address)],
            {},
            log_level="debug",
            regions=["local", "elsewhere"],
        )
        part.settings["registries"] = [
            {"name": "local", "address": registry.address},
            {"name": "quoting", "address": quoting.address, **_login(tmp_path)},
        ]
        try:
            await asyncio.to_thread(part.start)
            await _check_process(part)
        finally:
            await asyncio.to_thread(part.__exit__, None, None, None)
            await agent.stop()
            await registry.stop()
        assert set(quoting.heard.values()) == {FILE_PASSWORD, REGISTRY_PASSWORD}


def _login(folder: Path) -> dict[str, str]:
    file = folder / "password"
    file.touch(mode=0o600)
    file.write_text(FILE_PASSWORD)
    return {"username": "robot", "password_file": str(file)}


async def _check_process(part: FirstStart) -> None:
    first = json.loads((part.state_dir / KEPT).read_text("utf-8"))
    tokens = {"alice": first["accounts"]["default"], "operator": first["operator_token"]}
    tour = Tour(part.base_url, tokens | {"bob": tokens["alice"]})
    await tour.go()
    secrets = [*tour.secrets, Secret(STRAY)]
    tour.check_answers()
    check_files(Path(f"/proc/{part.process.pid}"), secrets, "cmdline", "environ")
    check_database(part.state_dir / "controlplane.db", tour.secrets)
    await asyncio.to_thread(part.process.stop)
    check_database(part.state_dir / "controlplane.db", tour.secrets)
    log = part.process.log.read_bytes()
    found_in(log, secrets, "stderr")
    assert b"[redacted]" in log
    assert "debug" in {logfmt(line)["level"] for line in log.decode().splitlines()}
