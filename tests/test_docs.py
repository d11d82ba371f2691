"""What the documents say is what there is."""

import re
from pathlib import Path

import pytest

from agent.settings.model import AgentConfig
from agent.settings.policy import Policy
from controlplane.settings.model import Config

ROOT = Path(__file__).resolve().parent.parent
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("Settings of the agent", set(AgentConfig.model_fields)),
        ("Host policy", set(Policy.model_fields)),
        ("Settings of the control plane", set(Config.model_fields)),
    ],
)
def test_every_setting_is_documented_and_no_other(heading: str, known: set[str]) -> None:
    section = OPERATIONS.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)) == known
