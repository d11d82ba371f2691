"""Run pytest on a module of its own, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.harness import ROOT

LONGEST_SECONDS = 50
"""Such a run takes a few seconds; this is less than what a test may take."""


def run_pytest(
    folder: Path,
    plugins: Iterable[str],
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run `test_it.py` of `folder` with the settings of this project; return exit code and output.

    Its temporary files are below `folder`: in the place that pytest chooses, it would also remove
    the files of former runs when it ends, which takes long after a run of all tests.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        *(f"-p{plugin}" for plugin in ("no:cacheprovider", *plugins)),
        f"-c={ROOT}/pyproject.toml",
        f"--rootdir={folder}",
        f"--basetemp={folder}/build/temporary",
        f"{folder}/test_it.py",
        *options,
    ]
    (folder / "build").mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode()
        raise AssertionError(f"pytest has not ended after {error.timeout} s:\n{output}") from error
    return done.returncode, done.stdout
