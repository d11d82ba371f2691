"""Every part of `make bench` runs; what it measures with so little effort says nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import PARTS
from tests.support.harness import ROOT

pytestmark = [
    pytest.mark.docker,
    pytest.mark.registry,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("docker_engine"),  # whose other users have the same ports, in turn
]

PROMISED = {
    "cold": {
        "cold.bridge.ratio",
        "cold.bridge.extra_ms",
        "cold.host.ratio",
        "cold.first_udp.ms",
        "cold.parallel.ratio",
    },
    "logs": {"logs.live.ratio", "logs.sealed.ratio", "logs.followers.lag_s"},
    "artifact": {"artifact.ratio"},
    "fleet": {
        "fleet.rss_mb",
        "fleet.idle_core",
        "fleet.converge_s",
        "fleet.placement.growth",
    },
    "agent": {
        "agent.rss_mb",
        "agent.kb_per_session",
        "agent.idle_core",
        "agent.adopt_s",
    },
    "bodies": {"bodies.largest_ms", "bodies.worst_ms"},
    "ttl": {"ttl.late_p99_ms", "ttl.early"},
    "warm": {
        "warm.one.p50_ms",
        "warm.one.p99_ms",
        "warm.chain.ratio",
        "warm.flatness",
        "warm.docker.p50_ms",
    },
    "read": {"read.describe.ratio", "read.list_ms", "read.join.ratio", "read.flood.ratio"},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_and_gives_its_figures(part: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "tests.bench", "--only", part, "--effort", "1"]
    command += ["--results", str(file)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(file.read_text())
    assert set(results) == {"machine", "versions", "commit", "results"}
    values = {each["name"]: each["value"] for each in results["results"]}
    assert PROMISED[part] <= set(values)
    assert all(map(math.isfinite, values.values())), "a figure is no number"
