"""The `Prefer` header of RFC 7240; unsupported preferences are ignored (section 2). Pure."""

import re
from collections.abc import Iterable

PREFER = "Prefer"
APPLIED = "Preference-Applied"
WAIT_READY = "wait=ready"  # Delay the response until players can reach the session
SHORTEST = 1
LONGEST = 120
UNSAID = 30  # Seconds to wait by default; below the 60 s that many proxies allow

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', re.DOTALL)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


def ready_wait(headers: Iterable[str]) -> int | None:
    """Return the seconds to wait for a ready session; None without `wait=ready`.

    `headers`: the values of all `Prefer` headers. The time is a parameter (`wait=ready; wait=60`)
    or a separate preference (`wait=ready, wait=60`). It is clamped; other values are ignored.
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
    """Unquote an alphanumeric value; others could contain separators."""
    return quoted[1] if quoted[1].isalnum() else '""'
