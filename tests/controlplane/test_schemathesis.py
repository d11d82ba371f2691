"""Schemathesis against the API's own document: what it allows is accepted, the rest refused.

It sends what the schema allows and what it forbids, and follows from call to call; see
schemathesis.toml for its checks and schemathesis_hooks.py for what no schema can say. `make fuzz`
runs it with another number of examples and another seed.
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.api import routes
from controlplane.metrics.http import HttpMetrics
from tests.controlplane.hostile_strings import STRINGS
from tests.support.controlplane.commands import finished
from tests.support.controlplane.system import System

COUNT = os.environ.get("COUNT", "5")
SEED = os.environ.get("SEED", "20261121")
"""Examples of each call in each phase, and the seed of their generator."""
ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
OPERATORS = re.compile("^/operator/")
NO_SUCCESS = {
    ("DELETE", "/operator/agent/{agent}"): "the only agent is in the settings file: 409",
    ("POST", "/operator/agent/{agent}/token"): "the only agent was never enrolled: 404 or 409",
    ("POST", "/operator/agent/{agent}/revoke"): "the only agent was never enrolled: 404 or 409",
}
"""Routes that cannot succeed here."""

Served = Counter[tuple[str, str, int]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """What the control plane answered: method, path of the route, status."""
    counted: Served = Counter()

    def count(metrics: HttpMetrics, method: str, route: str, status: int, seconds: float) -> None:
        counted[method, route, status] += 1
        answered(metrics, method, route, status, seconds)

    answered = HttpMetrics.answered
    monkeypatch.setattr(HttpMetrics, "answered", count)
    return counted


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.timeout(1200 * max(1, int(COUNT) / 200))
@pytest.mark.parametrize("caller", ["account", "operator"])
async def test_api_is_as_its_document_says(tmp_path: Path, served: Served, caller: str) -> None:
    system = System(
        tmp_path,
        start_rate=1e6,
        start_burst=1_000_000,
        webhook_networks=("127.0.0.0/8",),
    )
    system.agent.host.free_sessions = 1_000_000
    system.agent.log.ended.set()  # a followed log ends at once
    async with system:
        await _fill(system)
        code, output = await _schemathesis(system, tmp_path, caller)
    assert code == 0, output
    if int(COUNT) < 200:  # too few to reach everything
        return
    mine = [
        route
        for route in routes.ROUTES
        if (caller == "operator") == bool(OPERATORS.match(route.path))
    ]
    for route in mine:
        succeeded = served[route.method, route.path, route.handler.status] > 0
        assert succeeded == ((route.method, route.path) not in NO_SUCCESS), route
    followed = Counter(_followed(tmp_path / "events.ndjson"))
    assert len(followed) >= 4, followed


async def _fill(system: System) -> None:
    """Make what the names of the settings and hooks stand for."""
    small = {"cpu": 0.001, "ram": 1}
    await system.make_application(limits=small, reservation=small)
    system.registry.push("studio/other", "v1")
    for number in range(1, 4):
        assert (await system.start(id=f"held-{number}")).status == 201
    assert (await system.start(id="ended-1")).status == 201
    assert (await system.call("DELETE", "/session/ended-1")).status == 204


async def _schemathesis(system: System, folder: Path, caller: str) -> tuple[int | None, str]:
    operator = caller == "operator"
    token = system.operator_token if operator else system.tokens["alice"]
    status, output, errors = await finished(
        Path(sys.executable).with_name("schemathesis"),
        f"--config-file={_config(folder)}",
        "run",
        f"{system.control_plane.base_url}/openapi.json",
        f"--{'include' if operator else 'exclude'}-path-regex={OPERATORS.pattern}",
        f"--max-examples={COUNT}",
        "--no-color",
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "TILTYARD_TOKEN": token},
    )
    return status, output + errors


def _config(folder: Path) -> Path:
    """Write the settings with their variable part."""
    hostile = [text for text in STRINGS if len(text) < 1000 and text.isprintable()]
    config = folder / CONFIG.name
    config.write_text(
        f"seed = {SEED}\n{CONFIG.read_text()}\n"
        f"[dictionaries.hostile]\nvalues = {json.dumps(hostile, ensure_ascii=False)}\n"
    )
    return config


def _followed(events: Path) -> Iterator[str]:
    """Yield the link of each successful call that followed one."""
    for line in events.read_text().splitlines():
        recorder: dict[str, Any] = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for identifier, case in recorder.get("cases", {}).items():
            interaction = recorder.get("interactions", {}).get(identifier, {})
            status = (interaction.get("response") or {}).get("status_code", 0)
            if case.get("transition") and 200 <= status < 300:
                yield case["transition"]["id"]
