from unittest import mock

from tiltyard.runtime import bounded_names
from tiltyard.runtime.bounded_names import OTHER, BoundedNames


@mock.patch.object(bounded_names, "MAX_NAMES", 2)
def test_name_keeps_its_label_while_present() -> None:
    names = BoundedNames()
    names.keep({("a", "3"), ("a", "4")})
    names.keep({("a", "1"), ("a", "3"), ("a", "4")})
    assert names.label(("a", "4")) == ("a", "4")
    assert names.label(("a", "1")) == (OTHER, OTHER)
    names.keep({("a", "1"), ("a", "4")})
    assert names.label(("a", "1")) == ("a", "1")
    assert names.label(("a", "3")) == (OTHER, OTHER)


def test_invalid_names_get_no_label() -> None:
    names = BoundedNames()
    hostile = {("a", "x" * 129), ("a\n", "game"), ("a", "\u202e")}
    names.keep(hostile | {("a", "jeu-à-deux")})
    assert all(names.label(name) == (OTHER, OTHER) for name in hostile)
    assert names.label(("a", "jeu-à-deux")) == ("a", "jeu-à-deux")
