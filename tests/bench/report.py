"""What a benchmark found, on which machine, with which versions: as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import docker

from tests.harness import ROOT

RESULTS = ROOT / "bench" / "results.json"


@dataclass(frozen=True)
class Result:
    """One figure."""

    name: str
    value: float
    unit: str


def write(results: Sequence[Result], docker_socket: Path) -> Path:
    """Write `bench/results.json` and return its path."""
    RESULTS.parent.mkdir(exist_ok=True)
    content = {
        "machine": _machine(),
        "versions": _versions(docker_socket),
        "commit": _commit(),
        "results": [asdict(result) for result in results],
    }
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    return RESULTS


def table(results: Sequence[Result]) -> str:
    """Return the figures, one a line."""
    width = max(len(result.name) for result in results)
    return "\n".join(f"{one.name:{width}}  {one.value:10.2f} {one.unit}" for one in results)


def _machine() -> dict[str, object]:
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_mib": memory // 2**20,
        "kernel": platform.release(),
    }


def _versions(docker_socket: Path) -> dict[str, str]:
    client = docker.DockerClient(base_url=f"unix://{docker_socket}", timeout=30)
    try:
        engine = client.version()
    finally:
        client.close()
    components = {part["Name"]: part["Version"] for part in engine.get("Components", [])}
    return {
        "docker_engine": engine["Version"],
        "containerd": components.get("containerd", ""),
        "runc": components.get("runc", ""),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("aiohttp", "grpcio", "docker", "tiltyard")},
    }


def _commit() -> str:
    """Return the commit, with `+` when the working tree differs from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
