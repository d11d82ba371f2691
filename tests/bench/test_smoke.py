"""Every part of `make bench` runs, with minimal effort and meaningless figures."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import PARTS
from tests.bench.report import PAGE
from tests.support.harness import ROOT

pytestmark = [
    pytest.mark.docker,
    pytest.mark.registry,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.usefixtures("docker_engine"),  # serializes users of the same ports
]

_GOAL = re.compile(r"\| `([\w.]+)` \|[^|]*\| at (?:least|most)")


IN_THE_GATE = {"read"}
"""The others start too much for the gate."""


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=[] if part in IN_THE_GATE else pytest.mark.thorough)
        for part in PARTS
    ],
)
def test_part_runs_and_reports_its_figures(part: str, tmp_path: Path) -> None:
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
    promised = set(_GOAL.findall(PAGE.read_text()))
    assert promised
    assert {f"{part}.stolen", *(n for n in promised if n.startswith(f"{part}."))} <= set(values)
    assert all(map(math.isfinite, values.values())), "a figure is no number"
