"""The settings as operators meet them: the tables of the docs, and the files to begin with."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent.settings.model import AgentConfig, load_config
from agent.settings.policy import Policy
from controlplane.settings.model import Config
from controlplane.settings.model import load_config as load_control_plane

ROOT = Path(__file__).resolve().parent.parent
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return the default of each setting, None if a function makes it."""
    return {
        key: field.default if field.default_factory is None else None
        for key, field in model.model_fields.items()
    }


AGENT = _defaults(AgentConfig)
CONTROL_PLANE = _defaults(Config)
PROGRAMS = pytest.mark.parametrize(
    ("heading", "file", "defaults"),
    [
        ("Settings of the agent", "agent.toml", AGENT),
        ("Settings of the control plane", "controlplane.toml", CONTROL_PLANE),
    ],
)


def _rows(heading: str) -> Iterator[tuple[str, ...]]:
    section = OPERATIONS.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


@PROGRAMS
def test_the_table_has_each_key_and_its_default(
    heading: str, file: str, defaults: dict[str, Any]
) -> None:
    rows = {row[0].strip("`"): row for row in _rows(heading)}
    assert rows.keys() == defaults.keys()
    for key, (_, default, meaning) in rows.items():
        assert meaning
        if default.startswith("`"):
            shown = default.strip("`")
            known = _plain(defaults[key])
            if isinstance(known, list | bool):
                assert tomllib.loads(f"x = {shown}")["x"] == known, key
            elif isinstance(known, float):
                assert float(shown) == known, key
            else:
                assert shown == str(known), key
        else:
            assert defaults[key] in {None, "", ()}, key


def test_the_table_of_the_policy_has_each_key() -> None:
    assert {row[0].strip("`") for row in _rows("Host policy")} == set(Policy.model_fields)


def _uncommented(text: str) -> str:
    return re.sub(r"^#(?=[a-z\[])", "", text, flags=re.MULTILINE)


@PROGRAMS
def test_the_file_to_begin_with_has_each_key_with_its_default_and_a_reason(
    heading: str, file: str, defaults: dict[str, Any]
) -> None:
    text = (ROOT / "systemd" / file).read_text("utf-8")
    assert tomllib.loads(text) == {}
    content = tomllib.loads(_uncommented(text))
    assert content.keys() == defaults.keys()
    for key, value in content.items():
        if defaults[key] not in {None, "", ()}:
            assert value == _plain(defaults[key]), key
    for block in text.split("\n\n"):
        if re.search(r"^#[a-z\[]", block, re.MULTILINE):
            assert block.startswith("# "), block  # its reason


@pytest.mark.parametrize("changed", [False, True])
def test_the_file_to_begin_with_can_be_used_as_it_is_and_with_all_that_is_in_it(
    tmp_path: Path, *, changed: bool
) -> None:
    for file in ("agent.toml", "controlplane.toml"):
        text = (ROOT / "systemd" / file).read_text("utf-8")
        (tmp_path / file).write_text(_uncommented(text) if changed else text)
    here = {} if changed else {"TILTYARD_AGENT_PUBLIC_ADDRESS": "192.0.2.1"}
    load_config(tmp_path / "agent.toml", here)
    load_control_plane(tmp_path / "controlplane.toml", {})
