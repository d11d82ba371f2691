"""`python -m tests.mutants`: what `make mutants ONLY=…` runs.

Every mutation is applied alone, to a copy of the working tree; several copies are used side by
side. Each test that its row names has to fail there; the same tests have to pass in the copy
without a mutation.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import click

from agent.init.binary import PATH
from tests.mutants.table import Mutant, load
from tests.support.harness import ROOT, copy_sources

LONGEST_SECONDS = 600  # One run of pytest; a test that takes longer counts as one that failed
WHOLE_SECONDS = 1800  # All tests without a mutation
TIMEOUT = 60  # Seconds of one test, unless it is marked: many hang with a defect
OTHER_SECONDS = 3600
"""Added to the time of a mutated file, since compiled modules are found by it and the size."""
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


def run_tests(
    tree: Path, tests: Iterable[str], *, seconds: float = LONGEST_SECONDS, is_mutated: bool = False
) -> tuple[int, str]:
    """Run tests in a source tree within `seconds`; return pytest's exit code and output.

    Skipped tests of the real parts count as failed, as in CI. Modules are compiled once, but of a
    tree with a mutation nothing is kept.
    """
    # A defect may make a test wait forever where no exception of a signal reaches it.
    limits = [f"--timeout={TIMEOUT}", "--timeout-method=thread"]
    options = ["-q", "-x", "-p", "no:cacheprovider", *limits]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {
        **os.environ,
        "CI": "true",
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1" if is_mutated else "",
    }
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"still running after {seconds:.0f} s"
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
    is_compiled = path.suffix in {".c", ".h"}
    status = path.stat()
    passed = []
    try:
        path.write_text(mutated, "utf-8")
        if is_compiled:
            build(tree)
        else:
            os.utime(path, (status.st_atime, status.st_mtime + OTHER_SECONDS))
        for test in mutant.tests:
            code, output = run_tests(tree, [test], is_mutated=True)
            if code not in {PASSED, FAILED}:
                raise click.ClickException(f"cannot run {test}:\n{output}")
            if code == PASSED:
                passed.append(test)
    finally:
        path.write_text(original, "utf-8")
        if is_compiled:
            build(tree)
        else:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return passed


def try_all(mutants: Sequence[Mutant], trees: Sequence[Path]) -> int:
    """Apply mutations, one at a time in each tree; report each, and count the survivors.

    One whose tests cannot be run counts as a survivor.
    """
    free = SimpleQueue[Path]()
    for tree in trees:
        free.put(tree)

    def tried(mutant: Mutant) -> tuple[list[str], float]:
        tree = free.get()
        begin = time.monotonic()
        try:
            found = [f"passes: {test}" for test in survived(tree, mutant)]
        except click.ClickException as error:
            found = [error.message]
        free.put(tree)
        return found, time.monotonic() - begin

    survivors = 0
    with ThreadPoolExecutor(len(trees)) as pool:
        for mutant, (found, seconds) in zip(mutants, pool.map(tried, mutants), strict=True):
            survivors += bool(found)
            state = "SURVIVED" if found else "killed"
            click.echo(f"{state:8} {seconds:5.0f} s  {mutant.name}")
            for line in found:
                click.echo(f"         {line}")
    return survivors


def beginning_with(name: str, mutants: Sequence[Mutant]) -> Sequence[Mutant]:
    """Leave out the mutants before one; "" leaves out none.

    Raises click.ClickException when there is none of that name.
    """
    names = ["", *(mutant.name for mutant in mutants)]
    if name not in names:
        raise click.ClickException(f"there is no mutant {name}")
    return mutants[max(0, names.index(name) - 1) :]


@click.command()
@click.option("--only", default="", help="Part of a mutant's name or file.")
@click.option(
    "--first", default="", help="Name of the mutant to begin with, after an interruption."
)
@click.option("--jobs", default=os.cpu_count() or 1, help="Mutations at a time.")
def main(only: str, first: str, jobs: int) -> None:
    """Apply the mutations, each alone, and report which the tests do not find."""
    mutants = beginning_with(first, load())
    mutants = [each for each in mutants if only in each.name or only in each.file]
    if not mutants:
        raise click.ClickException(f"no mutant has {only!r} in its name or file")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [Path(folder) / str(number) for number in range(jobs)]
        for tree in trees:
            copy_sources(tree)
            build(tree)
        tests = sorted({test for each in mutants for test in each.tests})
        code, output = run_tests(trees[0], [*tests, "-n", str(jobs)], seconds=WHOLE_SECONDS)
        if code != PASSED:
            raise click.ClickException(f"the tests fail without a mutation:\n{output}")
        for tree in trees[1:]:
            run_tests(tree, ["--collect-only", *tests])  # which compiles all modules
        survivors = try_all(mutants, trees)
    click.echo(f"{len(mutants)} mutants: {survivors} survived")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
