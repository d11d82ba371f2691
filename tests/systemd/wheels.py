"""Locked packages, downloaded once for installations without a package index."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.harness import ROOT

_LOCKED = ROOT / "requirements.txt"
_LOCKED_TOOLS = ROOT / "requirements-dev.txt"
_TOOLS = ("setuptools",)  # Build requirements of the wheel; locked with the development tools
_CACHE = ROOT / "build"
_FETCH_TIMEOUT = 300.0


def fetched_wheels(python: str) -> Path:
    """Return a folder with all locked packages for a Python version such as `3.11`."""
    locked = _LOCKED.read_text() + "".join(map(_locked_tool, _TOOLS))
    key = hashlib.sha256(f"{python}\n{locked}".encode()).hexdigest()[:16]
    wheels = _CACHE / f"wheels-{key}"
    _CACHE.mkdir(exist_ok=True)
    with (_CACHE / "wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wheels.exists():
            partial = wheels.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            (partial / "requirements.txt").write_text(locked)
            _fetch(partial, python)
            partial.rename(wheels)
    return wheels


def _fetch(folder: Path, python: str) -> None:
    fetched = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"),
            *("--require-hashes", "--only-binary=:all:", f"--python-version={python}"),
            f"--requirement={folder / 'requirements.txt'}",
            f"--dest={folder}",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=_FETCH_TIMEOUT,
    )
    if fetched.returncode != 0:
        raise RuntimeError(f"pip cannot fetch the locked packages:\n{fetched.stderr}")


def _locked_tool(name: str) -> str:
    """Return the lines that lock a package: version and hashes."""
    lines = _LOCKED_TOOLS.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{name}=="))
    last = next(number for number in range(first, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[first : last + 1]) + "\n"
