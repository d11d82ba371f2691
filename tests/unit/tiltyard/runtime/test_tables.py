import pytest

from tiltyard.runtime.tables import cores, sheet, size, table


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
    assert cores(10**8) == "0.1"
    assert cores(2 * 10**9) == "2"
    assert cores(1_333_333_333) == "1.333"


def test_cells_are_single_lines_and_aligned() -> None:
    found = table(("A", "BB"), [("1\n2", ""), ("x", "\x1b")])
    assert found == ["A     BB", r"1\n2  -", r"x     \x1b"]
    assert sheet([("a", "\r"), ("bcd", "")]) == [r"a    \r", "bcd  -"]
    assert sheet([]) == []
