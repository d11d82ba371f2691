from dataclasses import fields, replace

from tiltyard.records import record


@record(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def test_records_of_equal_fields_are_one_key() -> None:
    points = {Point(1, 2): "here"}
    assert points[Point(1, 2)] == "here"
    assert Point(1, 2) != Point(1, 3)


def test_record_is_copied_with_changes() -> None:
    assert replace(Point(1, 2), y=3) == Point(1, 3)
    assert [each.name for each in fields(Point)] == ["x", "y"]
