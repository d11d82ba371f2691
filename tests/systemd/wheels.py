"""Locked packages, downloaded once for installations without a package index."""

import subprocess
import sys
from pathlib import Path

from tests.support.harness import ROOT
from tests.systemd.root import made_once

_LOCKED = ROOT / "requirements.txt"
_LOCKED_TOOLS = ROOT / "requirements-dev.txt"
_TOOLS = ("setuptools",)  # Build requirements of the wheel; locked with the development tools
_FETCH_TIMEOUT = 300.0


def fetched_wheels(python: str) -> Path:
    """Return a folder with all locked packages for a Python version such as `3.11`."""
    locked = _LOCKED.read_text() + "".join(map(_locked_tool, _TOOLS))
    recipe = f"{python}\n{locked}".encode()
    return made_once("wheels", recipe, lambda folder: _fetch(folder, python, locked))


def _fetch(folder: Path, python: str, locked: str) -> None:
    folder.mkdir()
    (folder / "requirements.txt").write_text(locked)
    fetched = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            f"--python-version={python}",
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
