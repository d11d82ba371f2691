"""Where known secrets are found after valid and invalid requests to every route.

A token's secret is shown once, to its maker; the database has its hash, and no other place any of
it. A session's own variables go to its host alone, and a registry's password to that registry.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controlplane.settings.registries import RegistryConfig
from tests.controlplane.body_models import REGISTRY_PASSWORD
from tests.controlplane.canary import (
    ENV,
    FILE_PASSWORD,
    KEPT,
    STRAY,
    Secret,
    Tour,
    check_files,
    check_nothing_in,
    check_state,
)
from tests.controlplane.quoting_registry import QuotingRegistry
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.fake_registry import FakeRegistry
from tests.support.controlplane.system import System
from tests.support.harness import AgentSpec, ControlPlaneProcess
from tests.support.log_lines import logfmt
from tiltyard.runtime.logging.output import LineFormatter


class Records(logging.Handler):
    """Keeps each record, before and after it is redacted."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.plain: list[str] = []
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.plain.append(logging.Formatter("%(name)s %(message)s").format(record))
        self.written.append(LineFormatter("logfmt", journald=False).format(record))


@pytest.fixture
def records() -> Iterator[Records]:
    """Every record of every logger."""
    root = logging.getLogger()
    handler = Records()
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


@pytest.fixture
async def quoting() -> AsyncIterator[QuotingRegistry]:
    async with QuotingRegistry() as running:
        yield running


@pytest.mark.timeout(120)
async def test_secrets_are_nowhere_else(
    tmp_path: Path, quoting: QuotingRegistry, records: Records
) -> None:
    system = System(tmp_path)
    entry = RegistryConfig(name="quoting", address=quoting.address)
    login = {"username": "robot", "password": FILE_PASSWORD}
    system.registries.append(entry.model_copy(update=login))
    async with system:
        system.registry.push("studio/game", "v1")
        alice = system.tokens["alice"]
        operator = system.operator_token
        tour = Tour(system.control_plane.base_url, alice, operator)
        await tour.go()
        secrets = [*tour.secrets, Secret(system.tokens["bob"])]
        tour.check_answers()
        assert any(ENV in request.spec.env.values() for request in system.agent.started)
        check_state(system.config.database, secrets)
        await system.nothing_is_left()
        await system.stop_serving()
        check_state(system.config.database, secrets)
        assert set(quoting.received.values()) == {FILE_PASSWORD, REGISTRY_PASSWORD}
    unredacted = "\n".join(records.plain).encode()
    check_nothing_in(unredacted, secrets, "the log, before it is redacted")
    written = "\n".join(records.written).encode()
    check_nothing_in(written, [*secrets, Secret(STRAY)], "the log")
    assert Secret(STRAY).is_in(unredacted), "no record quotes what is sent: the log proves nothing"
    assert b"[redacted]" in written
    assert {logfmt(line)["level"] for line in records.written} >= {"debug", "info"}


class FirstStart(ControlPlaneProcess):
    """Started without `init`, so that it leaves the first tokens in a file."""

    def _init(self) -> None:
        """Leave it to `serve`."""


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_process_shows_no_secrets(tmp_path: Path, quoting: QuotingRegistry) -> None:
    registry = FakeRegistry()
    agent = FakeAgent(tmp_path, "a0")
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text(FILE_PASSWORD)
    await registry.start()
    await agent.start()
    registry.push("studio/game", "v1")
    agents = [AgentSpec(agent.name, agent.address)]
    regions = ["local", "elsewhere"]
    part = FirstStart(agents, {}, log_level="debug", regions=regions)
    login = {"username": "robot", "password_file": str(file)}
    part.settings["registries"] = [
        {"name": "local", "address": registry.address},
        {"name": "quoting", "address": quoting.address, **login},
    ]
    try:
        await asyncio.to_thread(part.start)
        first = json.loads((part.state_dir / KEPT).read_text("utf-8"))
        tour = Tour(part.base_url, first["accounts"]["default"], first["operator_token"])
        await tour.go()
        tour.check_answers()
        secrets = [*tour.secrets, Secret(STRAY)]
        shown = Path(f"/proc/{part.process.pid}")
        check_files(secrets, shown / "cmdline", shown / "environ")
        await asyncio.to_thread(part.process.stop)
        check_state(part.state_dir / "controlplane.db", tour.secrets)
        log = part.process.log.read_bytes()
        check_nothing_in(log, secrets, "stderr")
        assert b"[redacted]" in log
        assert "debug" in {logfmt(line)["level"] for line in log.decode().splitlines()}
    finally:
        await asyncio.to_thread(part.__exit__, None, None, None)
        await agent.stop()
        await registry.stop()
