"""`python -m tests.bench [--only PART]`, which is `make bench ONLY=PART`."""

import sys
from collections.abc import Callable, Mapping
from operator import sub
from pathlib import Path

import click

from tests.bench import agent, artifact, bodies, cold, events, fleet, logs, read, report, ttl, warm
from tests.bench.process_use import machine_ticks
from tests.bench.report import Result
from tests.support.deployment import StepFailedError, Steps, exit_on_signals
from tests.support.real_engine import RELEASE

Part = Callable[[int, Steps], list[Result]]
"""Runs a benchmark with an effort in per cent, and prints its steps."""

PARTS: Mapping[str, Part] = {
    "cold": cold.measure,
    "warm": warm.measure,
    "read": read.measure,
    "bodies": bodies.measure,
    "event": events.measure,
    "fleet": fleet.measure,
    "agent": agent.measure,
    "logs": logs.measure,
    "artifact": artifact.measure,
    "ttl": ttl.measure,
}
WHOLE = 100


@click.command()
@click.option("--only", type=click.Choice([*PARTS]), help="Run this part alone.")
@click.option(
    "--effort",
    type=click.IntRange(1, WHOLE),
    default=WHOLE,
    show_default=True,
    help="Per cent of the rounds and sizes; with less than all the figures say little.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=report.RESULTS,
    help="Where the figures go.",
)
def main(only: str | None, effort: int, results: Path) -> None:
    """Measure on this machine; write bench/results.json, and the page with all effort.

    The page is of the machine's own engine. A part that fails does not keep the others from being
    measured.
    """
    exit_on_signals(130)
    steps = Steps()
    found: list[Result] = []
    failed = []
    for name in [only] if only else PARTS:
        before = machine_ticks()
        try:
            found += PARTS[name](effort, steps)
        except StepFailedError:
            failed.append(name)
        stolen, wanted = map(sub, machine_ticks(), before)
        found.append(Result(f"{name}.stolen", stolen / wanted, "of all CPU time"))
    report.write(found, results, report.PAGE if effort == WHOLE and not RELEASE else None)
    click.echo(f"\n{report.table(found)}\n\n{results}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
