"""Resources of the programs after each round of a soak: growth, and a plot."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from tests.support.harness import ROOT

PLOT = ROOT / "build/soak.svg"  # Of the latest soak


class Held(NamedTuple):
    """Resources of a program while no session is live."""

    memory: float  # Resident, in MB (10^6 bytes)
    descriptors: int
    files: int  # In its state directory, without those of ended sessions


class Sample(NamedTuple):
    """The programs after a round, by name."""

    minutes: float  # Since the begin of the soak
    held: Mapping[str, Held]


SPARE = Held(memory=16, descriptors=16, files=0)
"""Tolerance for growth: allocators, and pools of threads and connections, keep as much."""
_COLOURS = ("#1f6feb", "#d1570a", "#1a7f37")
_UNITS = {"memory": "memory in MB", "descriptors": "descriptors", "files": "files"}
_WIDTH = 640
_HEIGHT = 120
_LEFT = 40
_ABOVE = 50


def compared(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The first fifth of the samples, without a tenth in which programs warm up, and the last."""
    warm = samples[min(len(samples) - 1, max(1, len(samples) // 10)) :]
    fifth = max(1, len(warm) // 5)
    return warm[:fifth], warm[-fifth:]


def medians(samples: Sequence[Sample], program: str) -> Held:
    """The median of each value."""
    return Held(*map(median, zip(*(each.held[program] for each in samples), strict=True)))


def growth(samples: Sequence[Sample]) -> list[str]:
    """Return the resources that grew from the beginning to the end."""
    first, last = compared(samples)
    return [
        f"{kind} of {program}: {before:g} at the beginning, {after:g} at the end"
        for program in samples[0].held
        for kind, before, after, spare in zip(
            Held._fields, medians(first, program), medians(last, program), SPARE, strict=True
        )
        if after > before + spare
    ]


def plot(samples: Sequence[Sample]) -> str:
    """An SVG image with a chart for each kind and a line for each program."""
    charts = "".join(
        f'<g transform="translate({_LEFT},{_ABOVE + number * (_HEIGHT + 40)})">{chart}</g>\n'
        for number, chart in enumerate(_chart(samples, kind) for kind in Held._fields)
    )
    names = "".join(
        f'<text x="{_LEFT + 160 * number}" y="16" style="fill:{colour}">{program}</text>\n'
        for number, (program, colour) in enumerate(zip(samples[0].held, _COLOURS, strict=False))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _LEFT} 540">\n'
        "<style>polyline,path{fill:none}text{font:12px sans-serif;fill:#57606a}</style>\n"
        f'<rect width="100%" height="100%" fill="#fff"/>\n{names}{charts}</svg>\n'
    )


def _chart(samples: Sequence[Sample], kind: str) -> str:
    values = {
        program: [getattr(each.held[program], kind) for each in samples]
        for program in samples[0].held
    }
    most = max(map(max, values.values()))
    end = samples[-1].minutes
    axes = f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" stroke="#d0d7de"/>'
    label = f'<text y="-6">{_UNITS[kind]}, from 0 to {most:g}, over {end:.0f} minutes</text>'
    lines = (
        f'<polyline points="{" ".join(_points(samples, found, most))}" stroke="{colour}"/>'
        for found, colour in zip(values.values(), _COLOURS, strict=False)
    )
    return "\n".join([label, axes, *lines])


def _points(samples: Sequence[Sample], values: Sequence[float], most: float) -> Iterator[str]:
    for sample, value in zip(samples, values, strict=True):
        x = _WIDTH * sample.minutes / samples[-1].minutes
        yield f"{x:.1f},{_HEIGHT * (1 - value / max(most, 1)):.1f}"
