import pytest

from tiltyard.runtime.tables import cores, sheet, size, span, table


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (-0.4, "0 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3605, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (90_000 * 365, "380 d 5 h"),
        (-30, "30 s ago"),
    ],
)
def test_formats_a_duration_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**30, "1 GiB"),
        (5000 * 2**30, "5000 GiB"),
    ],
)
def test_formats_sizes_with_a_fitting_unit(count: int, shown: str) -> None:
    assert size(count) == shown


def test_formats_cores_with_four_digits() -> None:
    assert [cores(10**8), cores(2 * 10**9), cores(1_333_333_333)] == ["0.1", "2", "1.333"]


def test_cells_are_single_lines_and_aligned() -> None:
    assert table(("A", "BB"), [("1\n2", ""), ("x", "\x1b")]) == [
        "A     BB",
        r"1\n2  -",
        r"x     \x1b",
    ]
    assert sheet([("a", "\r"), ("bcd", "")]) == [r"a    \r", "bcd  -"]
    assert sheet([]) == []
