"""Checks of settings files for both programs."""

from collections.abc import Callable
from pathlib import Path

from tiltyard.runtime.settings import SettingsError

ODD = (
    "1",
    "-1",
    "0",
    "1e400",
    "nan",
    "true",
    "99999999999999999999",
    "1979-05-27",
    "07:32:00",
    "''",
    "'x'",
    '"\\u0000"',
    "'é😀'",
    "[]",
    "[1]",
    "['']",
    "[[1]]",
    "{}",
    "{a = 1}",
    "[{}]",
)
"""Values of every TOML type, few of which are valid anywhere."""


def assert_accepted_or_located(
    path: Path, key: str, check: Callable[[Path], object], refusal: type[SettingsError]
) -> None:
    """Check that any value is accepted, or refused with the location of each error."""
    for value in ODD:
        path.write_text(f"{key} = {value}\n")
        try:
            check(path)
        except refusal as error:
            nowhere = [str(mistake) for mistake in error.mistakes if not mistake.where]
        else:
            nowhere = []
        assert nowhere == [], value
