"""`python -m tests.bench [--only NAME]`, which is `make bench ONLY=NAME`."""

from __future__ import annotations

import sys

import click

from tests.bench import cold, report
from tests.deployment import Deployment, StepFailed, Steps, exit_on_signals

BENCHMARKS = {"cold": cold.measure}


@click.command()
@click.option("--only", type=click.Choice(sorted(BENCHMARKS)), help="Run this one alone.")
@click.option("--rounds", type=click.IntRange(10), default=20, show_default=True)
def main(only: str | None, rounds: int) -> None:
    """Measure on this machine and write bench/results.json."""
    exit_on_signals(130)
    steps = Steps()
    results: list[report.Result] = []
    try:
        with Deployment(steps) as deployment:
            for name in [only] if only else BENCHMARKS:
                with steps.step(f"{name}, {rounds} rounds"):
                    results += BENCHMARKS[name](deployment, rounds)
            path = report.write(results, deployment.engine.socket)
    except StepFailed:
        sys.exit(1)
    click.echo(f"\n{report.table(results)}\n\n{path}")


if __name__ == "__main__":
    main()
