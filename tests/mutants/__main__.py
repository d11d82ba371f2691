"""`python -m tests.mutants`: what `make mutants ONLY=…` runs.

Every mutation is applied alone, to a copy of the working tree. Each test that its row names has to
fail there; the same tests have to pass in the copy without a mutation.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import click

from agent.init.binary import PATH
from tests.mutants.table import Mutant, load
from tests.support.harness import ROOT, copy_sources

LONGEST_SECONDS = 600  # One run of pytest; a test that takes longer counts as one that failed
TIMEOUT = 60  # Seconds of one test, unless it is marked: many hang with a defect
PASSED = 0
FAILED = 1
"""Exit codes of pytest; others say that the tests could not be run."""


def build(tree: Path) -> None:
    """Compile the first process of containers, if its sources have changed.

    Raises click.ClickException when they cannot be compiled.
    """
    command = ["make", "--silent", str(PATH.relative_to(ROOT))]
    done = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode != 0:
        raise click.ClickException(f"cannot build {PATH.name}:\n{done.stderr}")


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in a source tree; return pytest's exit code and output.

    Skipped tests of the real parts count as failed, as in CI.
    """
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--timeout={TIMEOUT}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {
        **os.environ,
        "CI": "true",
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"still running after {LONGEST_SECONDS} s"
    return done.returncode, done.stdout


def survived(tree: Path, mutant: Mutant) -> list[str]:
    """Apply a mutation, run its tests, restore the file; return the tests that did not fail.

    Raises click.ClickException when the mutation does not fit or a test cannot be run.
    """
    path = tree / mutant.file
    original = path.read_text("utf-8")
    try:
        mutated = mutant.applied(original)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    path.write_text(mutated, "utf-8")
    passed = []
    is_compiled = path.suffix in {".c", ".h"}
    try:
        if is_compiled:
            build(tree)
        for test in mutant.tests:
            code, output = run_tests(tree, [test])
            if code not in {PASSED, FAILED}:
                raise click.ClickException(f"cannot run {test}:\n{output}")
            if code == PASSED:
                passed.append(test)
    finally:
        path.write_text(original, "utf-8")
        if is_compiled:
            build(tree)
    return passed


@click.command()
@click.option("--only", default="", help="Part of a mutant's name or file.")
def main(only: str) -> None:
    """Apply the mutations one by one and report which the tests do not find."""
    mutants = [each for each in load() if only in each.name or only in each.file]
    if not mutants:
        raise click.ClickException(f"no mutant has {only!r} in its name or file")
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy_sources(tree)
        build(tree)
        code, output = run_tests(tree, sorted({test for each in mutants for test in each.tests}))
        if code != PASSED:
            raise click.ClickException(f"the tests fail without a mutation:\n{output}")
        for mutant in mutants:
            begin = time.monotonic()
            passed = survived(tree, mutant)
            survivors += bool(passed)
            state = "SURVIVED" if passed else "killed"
            click.echo(f"{state:8} {time.monotonic() - begin:5.0f} s  {mutant.name}")
            for test in passed:
                click.echo(f"         passes: {test}")
    click.echo(f"{len(mutants)} mutants: {survivors} survived")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
