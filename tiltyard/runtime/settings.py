"""Reads a pydantic model of settings from a TOML file and the environment.

All mistakes are reported at once, one line each.
"""

import difflib
import functools
import ipaddress
import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import click
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tiltyard.runtime.tables import printable

EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: a restart without an edit fails again

LARGEST_PORT = 65535
MOST_DIGITS = 5
_HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")
_ASSIGNMENT = re.compile(r"""\s*["']?([\w-]+)["']?\s*=""")
_TEXTS = {"extra_forbidden": "unknown key", "missing": "is missing"}
"""Replacements of pydantic's messages, by error type."""

T = TypeVar("T")
Key = tuple[str | int, ...]  # Path to a value: names of tables and keys, and indexes of lists


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake; `where` is a file with a line, or a variable."""

    key: Key
    text: str
    where: str = ""

    def __str__(self) -> str:
        parts = (self.where, shown(self.key), self.text)
        return " ".join(": ".join(filter(None, parts)).splitlines())


class SettingsError(Exception):
    """Invalid settings; the message has one line per mistake."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


def shown(key: Key) -> str:
    """Format a key: `registries[0].address`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


def host_and_port(text: str) -> tuple[str, int]:
    """Split `host:port` and remove IPv6 brackets. The host may be empty.

    Raises:
        ValueError: Invalid address.
    """
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise ValueError("must have the form host:port")
    if len(port) > MOST_DIGITS or int(port) > LARGEST_PORT:
        raise ValueError(f"the port must be at most {LARGEST_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _split(value: Any) -> Any:
    return [word for word in value.split(",") if word] if isinstance(value, str) else value


def checked(check: Callable[[T], object]) -> AfterValidator:
    """Call `check` on a value and keep the value; it raises ValueError."""

    def keep(value: T) -> T:
        check(value)
        return value

    return AfterValidator(keep)


def _absolute(value: Path) -> None:
    if not value.is_absolute():
        raise ValueError("must be an absolute path")


Absolute = Annotated[Path, checked(_absolute)]

_OF_THE_KERNEL = ("/dev/", "/proc/", "/sys/")
_SHARED_FOLDERS = frozenset(
    {
        "/",
        "/bin",
        "/boot",
        "/etc",
        "/home",
        "/lib",
        "/media",
        "/mnt",
        "/opt",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/tmp",  # noqa: S108 - it is refused
        "/usr",
        "/var",
        "/var/lib",
        "/var/lib/docker",
        "/var/tmp",  # noqa: S108 - it is refused
    }
)
"""Folders with files of others, of which a program must not take possession."""


def _own_folder(value: Path) -> None:
    path = posixpath.normpath(value).replace("//", "/")
    if path in _SHARED_FOLDERS or f"{path}/".startswith(_OF_THE_KERNEL):
        raise ValueError("must be a folder of its own, such as one below /var/lib")


OwnFolder = Annotated[Absolute, checked(_own_folder)]
"""The absolute path of a folder that only one program uses."""

Words = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""A list, comma-separated in the environment."""

NetworkText = Annotated[str, AfterValidator(lambda text: str(ipaddress.ip_network(text)))]
"""A normalized network, such as 10.0.0.0/8."""


class Settings(BaseModel):
    """Base class of a program's settings and their tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if (
            isinstance(value, bool)
            and cls.model_fields[str(info.field_name)].annotation is not bool
        ):
            raise ValueError("must not be true or false")
        return value

    def mistakes(self) -> Iterator[Mistake]:
        """Check rules that involve several settings."""
        return iter(())


S = TypeVar("S", bound=Settings)


def both_or_none(here: Key, **given: object) -> Iterator[Mistake]:
    """Check that two keys of a table are set together."""
    [(one, first), (other, second)] = given.items()
    if bool(first) != bool(second):
        present, absent = (one, other) if first else (other, one)
        yield Mistake((*here, present), f"goes together with {absent}; set both or none")


def read_settings(
    model: type[S], path: Path | None, environment: Mapping[str, str], prefix: str
) -> S:
    """Read settings from a file, if given, and the variables that begin with `prefix`. Blocks.

    Raises:
        SettingsError: With all mistakes.
    """
    table = {} if path is None else read_toml(path)
    given = {name: text for name, text in environment.items() if name.startswith(prefix)}
    known = {prefix + key.upper(): key for key in model.model_fields}
    texts = {known[name]: text for name, text in given.items() if name in known}
    found = [
        Mistake((), "unknown variable" + _similar(name, known), name)
        for name in sorted(given.keys() - known)
    ]
    try:
        config = model.model_validate(table | texts)
        found.extend(config.mistakes())
    except ValidationError as error:
        found.extend(mistakes_of(error, model))
    if found:
        variables = {key: prefix + key.upper() for key in texts}
        raise SettingsError(*placed(found, path, variables))
    return config


def placed(
    found: Iterable[Mistake], path: Path | None, variables: Mapping[str, str] | None = None
) -> Iterator[Mistake]:
    """Add to each mistake the variable, or the file and line, that set its key. Blocks."""
    lines = {} if path is None else lines_of(path.read_text("utf-8", "replace"))
    for each in found:
        key = each.key
        where = each.where or (variables or {}).get(str(key[0]) if key else "", str(path or ""))
        if where == str(path):
            while key and key not in lines:
                key = key[:-1]
            where += f":{lines[key]}" if key else ""
        yield replace(each, where=where)


def lines_of(text: str) -> dict[Key, int]:
    """Return the line numbers, from 1, of the keys in a TOML file."""
    found: dict[Key, int] = {}
    table: Key = ()
    entries: dict[Key, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = tuple(header[2].split("."))
            if header[1] == "[[":
                entries[table] = entries.get(table, -1) + 1
                table = (*table, entries[table])
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault((*table, assignment[1]), number)
    return found


def _similar(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Blocks.

    Raises:
        SettingsError: Unreadable, or not TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a path with a NUL
        problem = str(error)
    raise SettingsError(Mistake((), f"cannot read {path}: {problem}"))


def mistakes_of(error: ValidationError, model: type[BaseModel]) -> Iterator[Mistake]:
    """Describe each pydantic error without its value, which may be a secret."""
    for one in error.errors(include_url=False):
        text = _TEXTS.get(one["type"]) or one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            text += _similar(str(one["loc"][-1]), _keys_of(model))
        yield Mistake(one["loc"], text)


@functools.cache
def _keys_of(model: type[BaseModel]) -> frozenset[str]:
    """The keys of all tables of a model."""
    schema = model.model_json_schema()
    tables = (schema, *schema.get("$defs", {}).values())
    return frozenset(key for table in tables for key in table.get("properties", {}))


def refuse(error: SettingsError) -> NoReturn:
    """Print one line per mistake and exit."""
    for mistake in error.mistakes:
        click.echo(printable(str(mistake)), err=True)
    sys.exit(EXIT_CONFIG)


def show(config: Settings) -> None:
    """Print the effective settings, without excluded fields."""
    for key, value in config.model_dump(mode="json").items():
        click.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}")
