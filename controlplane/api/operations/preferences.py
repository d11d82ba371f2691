"""What a caller would like of an answer: the `Prefer` header of RFC 7240. Pure.

What is not known or cannot be done is ignored, never refused (section 2).
"""

import re
from collections.abc import Iterable

PREFER, APPLIED = "Prefer", "Preference-Applied"
WAIT_READY = "wait=ready"
"""Have the answer wait until players can reach the session, up to a number of seconds."""
SHORTEST, LONGEST = 1, 120
UNSAID = 30
"""Seconds to wait where the caller does not say; below the 60 s that many proxies allow."""

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', re.DOTALL)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


def ready_wait(headers: Iterable[str]) -> int | None:
    """Give the seconds that an answer may wait for a ready session; None when it does not wait.

    `headers` are the values of all `Prefer` headers. The time is a parameter
    (`wait=ready; wait=60`); a preference of its own (`wait=ready, wait=60`) is taken for the same.
    A number out of range is brought into it; what is no number says nothing.
    """
    preferences = (
        [
            tuple(word.strip().lower() for word in part.partition("=")[::2])
            for part in text.split(";")
        ]
        for header in headers
        for text in _QUOTED.sub(_unquoted, header).split(",")
    )
    found = [(value, rest) for (name, value), *rest in preferences if name == "wait"]
    ready = next((rest for value, rest in found if value == "ready"), None)
    if ready is None:
        return None
    waits = [value for name, value in ready if name == "wait"] + [value for value, _ in found]
    seconds = next((int(value) for value in waits if _SECONDS.fullmatch(value)), UNSAID)
    return min(max(seconds, SHORTEST), LONGEST)


def _unquoted(quoted: re.Match[str]) -> str:
    """Give a quoted value, but for one whose text would read as more than a value."""
    return quoted[1] if quoted[1].isalnum() else '""'
