"""What a check finds. Pure."""

import enum
from dataclasses import dataclass


class Level(enum.Enum):
    """Severity: `FAIL` breaks a guarantee of the product, `WARN` weakens one, or may."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: what was found and, unless `OK`, what to do."""

    check: str
    level: Level
    found: str
    hint: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, hint: str) -> Finding:
    """A weaker guarantee, or an unknown one."""
    return Finding(check, Level.WARN, found, hint)


def bad(check: str, found: str, hint: str) -> Finding:
    """A broken guarantee."""
    return Finding(check, Level.FAIL, found, hint)
