from xml.etree import ElementTree as ET

import pytest

from tests.faults.soak import Held, Sample, compared, growth, plot


def samples(*memory: float, files: int = 7) -> list[Sample]:
    return [
        Sample(minutes + 1.0, {"agent": Held(each, 20, files), "control plane": Held(90, 30, 9)})
        for minutes, each in enumerate(memory)
    ]


def test_compares_fifths_after_warming_up() -> None:
    first, last = compared(samples(*range(30)))
    assert [each.minutes for each in first] == [4, 5, 6, 7, 8]
    assert [each.minutes for each in last] == [26, 27, 28, 29, 30]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_samples_are_compared(count: int) -> None:
    assert growth(samples(*[60] * count)) == []


def test_finds_growth_and_ignores_single_values() -> None:
    assert growth(samples(20, 60, 60, 99, *[60] * 12, 99, 70, 70)) == []
    found = growth(samples(20, *[60] * 12, *[90] * 5))
    assert found == ["memory of agent: 60 at the beginning, 90 at the end"]
    one_more = growth([*samples(*[60] * 5), *samples(60, files=8)])
    assert one_more == ["files of agent: 7 at the beginning, 8 at the end"]


def test_plot_has_a_line_for_each_program_and_kind() -> None:
    image = ET.fromstring(plot(samples(60, 61, 60)))
    lines = image.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6
    assert lines[0].get("points") == "213.3,40.0 426.7,38.7 640.0,40.0"
