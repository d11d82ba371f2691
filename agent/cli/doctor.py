"""`tiltyard-agent doctor`: problems of this host, and how to fix them."""

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click

from agent.cli.options import AS_JSON, CONFIG, EXIT_FAILED
from tiltyard.runtime.tables import printable


@click.command()
@CONFIG
@AS_JSON
def doctor(path: Path | None, *, as_json: bool) -> None:
    """Check this host, with or without a running agent; exit code 1 if a check fails.

    It changes nothing.
    """
    from agent.cli.settings import read_config
    from agent.doctor.diagnosis import diagnose
    from agent.doctor.facts import Level
    from agent.doctor.gather import gather

    findings = diagnose(gather(read_config(path)))
    counts = Counter(finding.level for finding in findings)
    if as_json:
        shown = [{**asdict(finding), "level": finding.level.value} for finding in findings]
        click.echo(json.dumps({"well": not counts[Level.FAIL], "findings": shown}, indent=2))
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            name = f"{finding.level.value:4}  {finding.check:{width}}"
            click.echo(f"{name}  {printable(finding.found)}")
            if finding.hint:
                click.echo(f"      hint: {printable(finding.hint)}")
        click.echo(", ".join(f"{counts[level]} {level.value}" for level in Level))
    if counts[Level.FAIL]:
        sys.exit(EXIT_FAILED)
