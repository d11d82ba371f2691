"""Durations as callers write them: `<hours>h<minutes>m`. Pure."""

import re

_FORM = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?\Z", re.ASCII)
MAX_SECONDS = 8760 * 3600
MIN_SECONDS = 60


def parse_duration(text: str) -> int:
    """Read a duration into seconds, at least one minute.

    Raises:
        ValueError: `text` has another form or is longer than 8760 hours.
    """
    match = _FORM.match(text)
    if not text or match is None:
        raise ValueError("must be hours, minutes or both, such as 2h, 45m or 1h30m")
    seconds = int(match[1] or 0) * 3600 + int(match[2] or 0) * 60
    if seconds > MAX_SECONDS:
        raise ValueError("must be at most 8760h")
    return max(seconds, MIN_SECONDS)
