"""What a check finds. Pure."""

import enum
from dataclasses import dataclass


class Level(enum.Enum):
    """How bad it is: `FAIL` breaks a promise of the product, `WARN` weakens one or may."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result: what was found; unless that is well, why it matters and what to do."""

    check: str
    level: Level
    found: str
    why: str = ""
    hint: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, *, why: str, hint: str) -> Finding:
    """Something is weaker than it could be, or cannot be told."""
    return Finding(check, Level.WARN, found, why, hint)


def bad(check: str, found: str, *, why: str, hint: str) -> Finding:
    """Something does not hold."""
    return Finding(check, Level.FAIL, found, why, hint)
