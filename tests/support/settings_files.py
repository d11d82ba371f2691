"""What tests of both programs do with a settings file."""

from collections.abc import Callable
from pathlib import Path

from tiltyard.runtime.settings import SettingsError

ODD = (
    *("1", "-1", "0", "1e400", "nan", "true", "99999999999999999999", "1979-05-27", "07:32:00"),
    *("''", "'x'", '"\\u0000"', "'é😀'", "[]", "[1]", "['']", "[[1]]", "{}", "{a = 1}", "[{}]"),
)
"""Values of every kind of TOML's, few of which fit anywhere."""


def assert_taken_or_told(
    path: Path, key: str, check: Callable[[Path], object], refusal: type[SettingsError]
) -> None:
    """Whatever stands for a key, a check takes it or refuses it with the place of each mistake."""
    for value in ODD:
        path.write_text(f"{key} = {value}\n")
        try:
            check(path)
        except refusal as error:
            nowhere = [str(mistake) for mistake in error.mistakes if not mistake.where]
        else:
            nowhere = []
        assert nowhere == [], value
