"""What `config check` says, for people and for programs. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltyard.runtime.settings.mistakes import Mistake, shown
from tiltyard.runtime.settings.source import Source

EXIT_CONFIG = 78
"""EX_CONFIG of sysexits.h: starting again without an edit is no use."""


@dataclass(frozen=True, slots=True)
class Report:
    """Lines for standard output and standard error, and the exit code."""

    shown: str
    told: tuple[str, ...]
    exit_code: int


def report(
    settings: Mapping[str, Any],
    source: Source,
    mistakes: Sequence[Mistake],
    *,
    as_json: bool,
    strict: bool,
) -> Report:
    """Tell all that is wrong, and show the settings unless they are refused.

    `settings` are those in effect, as JSON has values; what is secret must not be among them.
    Warnings refuse them when it is `strict`.
    """
    refused = any(strict or not mistake.is_warning for mistake in mistakes)
    exit_code = EXIT_CONFIG if refused else 0
    if as_json:
        return Report(_for_programs({} if refused else settings, source, mistakes), (), exit_code)
    shown = "" if refused else _for_people(settings, source)
    return Report(shown, tuple(map(str, mistakes)), exit_code)


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
