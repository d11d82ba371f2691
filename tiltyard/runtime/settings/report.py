"""What the commands of both programs print of settings, for people and for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from tiltyard.runtime.settings.mistakes import Mistake, SettingsError, in_order, shown
from tiltyard.runtime.settings.reading import Reading, Settings
from tiltyard.runtime.settings.source import Source
from tiltyard.runtime.tables import printable

EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: starting again without an edit is no use."""

S = TypeVar("S", bound=Settings)


def refuse(error: SettingsError) -> NoReturn:
    """End the command with a line for each mistake."""
    for mistake in error.mistakes:
        click.echo(printable(str(mistake)), err=True)
    sys.exit(EXIT_CONFIG)


def report(
    reading: Reading[S],
    look: Callable[[S], Iterable[Mistake]],
    *,
    as_json: bool,
    strict: bool,
    secret: Mapping[str, Any] | None = None,
) -> NoReturn:
    """End the command with all that is wrong, or show the settings in effect.

    `look` checks what they point to, `secret` names what is not shown, as pydantic's `exclude`
    does. With `strict` warnings refuse them, too.
    """
    source, config, mistakes = reading
    settings: Mapping[str, Any] = {}
    if config is not None:
        mistakes = in_order([*mistakes, *map(source.located, look(config))])
        settings = config.model_dump(mode="json", exclude=secret)
    refused = any(strict or not mistake.is_warning for mistake in mistakes)
    if as_json:
        click.echo(_for_programs({} if refused else settings, source, mistakes))
    else:
        for mistake in mistakes:
            click.echo(printable(str(mistake)), err=True)
        if not refused:
            click.echo(_for_people(settings, source))
    sys.exit(EXIT_CONFIG if refused else 0)


def _for_people(settings: Mapping[str, Any], source: Source) -> str:
    lines = [
        f"# {key} is not set" if value is None else f"{key} = {_toml(value)}"
        for key, value in settings.items()
    ]
    width = min(40, max(map(len, lines), default=0))
    return "\n".join(
        f"{line:<{width}}  # {source.where((key,))}"
        for line, key in zip(lines, settings, strict=True)
    )


def _for_programs(settings: Mapping[str, Any], source: Source, mistakes: Sequence[Mistake]) -> str:
    content = {
        "mistakes": [_described(each) for each in mistakes if not each.is_warning],
        "warnings": [_described(each) for each in mistakes if each.is_warning],
        "settings": {
            key: {"value": value, "from": source.where((key,))} for key, value in settings.items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _described(mistake: Mistake) -> dict[str, str]:
    return {
        "where": mistake.where,
        "key": shown(mistake.key),
        "text": mistake.text,
        "hint": mistake.hint,
    }


def _toml(value: Any) -> str:
    """Write a value of JSON's kinds in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
