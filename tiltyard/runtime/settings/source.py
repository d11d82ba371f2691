"""Settings as written in a file and in the environment, with the position of each."""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tiltyard.runtime.settings.lines import lines_of
from tiltyard.runtime.settings.mistakes import Key, Mistake, SettingsError, unknown

DEFAULT = "default"
"""The origin of a setting that is not set."""
MAX_BYTES = 1 << 20
"""A file has some thousands; what is larger is another file."""

_LINE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True)
class Source:
    """What was written: the file's content, and texts of the environment by their keys.

    `variables` are the names of those in the environment.
    """

    path: Path | None = None
    text: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def where(self, key: Key) -> str:
        """Say where a key is set, or else the nearest table around it: DEFAULT when nowhere."""
        if not key:
            return str(self.path or "")
        if key[0] in self.variables:
            return self.variables[str(key[0])]
        for length in range(len(key), 0, -1):
            if line := self._lines.get(key[:length]):
                return f"{self.path}:{line}"
        return DEFAULT

    def located(self, mistake: Mistake) -> Mistake:
        """Say of a mistake where it is; a key that is missing has no place but the file's."""
        if mistake.where:
            return mistake
        where = self.where(mistake.key)
        if where == DEFAULT:
            where = str(self.path or "")
        return replace(mistake, where=where)

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return lines_of(self.text)


def read_source(
    path: Path | None, environment: Mapping[str, str], prefix: str, keys: Iterable[str]
) -> Source:
    """Read a file, and the variables that begin with `prefix` and end with one of `keys`. Blocks.

    Raises SettingsError when it cannot be read, or is no TOML.
    """
    set_there = {key: prefix + key.upper() for key in keys if prefix + key.upper() in environment}
    texts = {key: environment[variable] for key, variable in set_there.items()}
    if path is None:
        return Source(environment=texts, variables=set_there)
    text = _read(path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the former also of too many digits
        found = _LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        problem = _LINE.sub("", str(error)).strip()
        raise SettingsError(
            Mistake((), f"cannot read {path}: {problem}", "it must be TOML", f"{path}:{line}")
        ) from error
    return Source(path, text, table, texts, set_there)


def unknown_variables(
    environment: Mapping[str, str], prefix: str, keys: Collection[str]
) -> Iterator[Mistake]:
    """Report variables that begin with `prefix` and do not end with one of `keys`."""
    known = {prefix + key.upper() for key in keys}
    for variable in sorted(environment.keys() - known):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            hint = unknown((name,), keys).hint
            problem = f"unknown key {name!r} in the environment"
            yield Mistake((name,), problem, hint, variable)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) <= MAX_BYTES:
            # As text files are read: an end of the line may be one of three.
            return content.decode().replace("\r\n", "\n").replace("\r", "\n")
        problem, hint = f"it has more than {MAX_BYTES} bytes", "name the settings file"
    except OSError as error:
        problem, hint = error.strerror or str(error), "name a file that this user may read"
    except UnicodeDecodeError as error:
        problem, hint = f"it is not UTF-8 at byte {error.start}", "save it as UTF-8"
    except ValueError as error:  # a name that can be none
        problem, hint = str(error), "name a file"
    raise SettingsError(Mistake((), f"cannot read {path}: {problem}", hint, str(path)))
