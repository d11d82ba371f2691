"""`python -m tests.fuzz`: what `make fuzz COUNT=… SEED=… ONLY=…` runs."""

import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.fuzz.runner import run


@click.command()
@click.option("--count", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", type=int, help="By chance unless it is given.")
@click.option("--only", type=click.IntRange(0), help="Send the request of this number alone.")
def main(count: int, seed: int | None, only: int | None) -> None:
    """Send bad requests to a control plane of its own, and say which answers were wrong."""
    seed = secrets.randbelow(10**9) if seed is None else seed
    click.echo(f"seed {seed}")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        report = asyncio.run(run(Path(folder), seed, range(count) if only is None else [only]))
    for failure in report.failures:
        click.echo(failure)
    for route, found in sorted(report.statuses.items()):
        click.echo(f"{route}: {', '.join(f'{k} x {v}' for k, v in sorted(found.items()))}")
    took = time.monotonic() - begin
    click.echo(f"{report.sent} requests in {took:.0f} s: {len(report.failures)} failures")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
