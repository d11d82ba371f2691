"""What `config check` tells of the control plane's settings."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from controlplane.settings.checks import all_mistakes
from controlplane.settings.model import Config, read_config
from tiltyard.runtime.settings.mistakes import in_order
from tiltyard.runtime.settings.report import Report, report

_HIDDEN = frozenset({"password", "ca"})
"""Of a registry: what the files have that its keys name."""


def checked(path: Path, *, as_json: bool, strict: bool) -> Report:
    """Look at the settings of a file and at all that they point to.

    Raises:
        ConfigError: The file cannot be read at all.
    """
    source, config, mistakes = read_config(path)
    if config is not None:
        mistakes += tuple(map(source.located, all_mistakes(config)))
    shown = {} if config is None else _shown(config)
    return report(shown, source, in_order(mistakes), as_json=as_json, strict=strict)


def _shown(config: Config) -> dict[str, Any]:
    settings = {key: _plain(value) for key, value in asdict(config).items()}
    for registry in settings["registries"]:
        for key in _HIDDEN:
            del registry[key]
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
