"""Which names have labels of their own."""

from tiltyard.runtime.bounded_names import OTHER, BoundedNames


def test_a_name_is_kept_until_nothing_of_it_is_left() -> None:
    names = BoundedNames(most=2)
    names.keep({("a", "3"), ("a", "4")})
    names.keep({("a", "1"), ("a", "3"), ("a", "4")})
    assert names.label(("a", "4")) == ("a", "4")
    assert names.label(("a", "1")) == (OTHER, OTHER)
    names.keep({("a", "1"), ("a", "4")})
    assert names.label(("a", "1")) == ("a", "1")
    assert names.label(("a", "3")) == (OTHER, OTHER)


def test_what_is_no_name_is_no_label() -> None:
    names = BoundedNames()
    hostile = {("a", "x" * 129), ("a\n", "game"), ("a", "\u202e")}
    names.keep(hostile | {("a", "jeu-à-deux")})
    assert all(names.label(name) == (OTHER, OTHER) for name in hostile)
    assert names.label(("a", "jeu-à-deux")) == ("a", "jeu-à-deux")
