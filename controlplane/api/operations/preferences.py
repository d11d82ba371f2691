"""What a caller would like of an answer: the `Prefer` header of RFC 7240. Pure.

What is not known or cannot be done is ignored, never refused (RFC 7240, section 2); an answer says
by `Preference-Applied` what was done.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PREFER, APPLIED = "Prefer", "Preference-Applied"
WAIT_READY = "wait=ready"
"""Have the answer wait until players can reach the session, up to a number of seconds."""
SHORTEST, LONGEST = 1, 120
UNSAID = 30
"""Seconds to wait where the caller does not say; below the 60 s that many proxies allow."""

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_MAYBE_QUOTED = r'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)'
"""As far as it goes, where the closing quote is missing: nothing is read twice."""
_PAIR = re.compile(rf"\s*+({_WORD})\s*+(?:=\s*+({_WORD}|{_QUOTED})?\s*+)?", re.ASCII | re.DOTALL)
_PREFERENCES = re.compile(rf'(?:{_MAYBE_QUOTED}|[^",])++', re.DOTALL)
_PARTS = re.compile(rf'(?:{_MAYBE_QUOTED}|[^";])++', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Preference:
    name: str
    value: str
    parameters: tuple[tuple[str, str], ...]


def ready_wait(headers: Iterable[str]) -> int | None:
    """Give the seconds that an answer may wait for a ready session; None when it does not wait.

    `headers` are the values of all `Prefer` headers. The time is a parameter
    (`wait=ready; wait=60`); a preference of its own (`wait=ready, wait=60`) is taken for the same.
    A number out of range is brought into it; what is no number says nothing.
    """
    found = [each for header in headers for each in _preferences(header) if each.name == "wait"]
    ready = next((each for each in found if each.value.lower() == "ready"), None)
    if ready is None:
        return None
    waits = [value for name, value in ready.parameters if name == "wait"]
    waits += [each.value for each in found]
    seconds = next((int(value) for value in waits if _SECONDS.fullmatch(value)), UNSAID)
    return min(max(seconds, SHORTEST), LONGEST)


def _preferences(header: str) -> Iterator[_Preference]:
    for preference in _PREFERENCES.findall(header):
        first = _PAIR.match(preference)
        rest = preference[first.end() :] if first is not None else ""
        if first is not None and rest[:1] in {"", ";"}:
            parts = map(_PAIR.fullmatch, _PARTS.findall(rest))
            yield _Preference(*_pair(first), tuple(_pair(part) for part in parts if part))


def _pair(found: re.Match[str]) -> tuple[str, str]:
    """A name in lower case, and its value as it is meant, empty when there is none."""
    name, value = found[1].lower(), found[2] or ""
    return name, _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
