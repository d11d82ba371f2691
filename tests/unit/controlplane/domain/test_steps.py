import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from controlplane.domain.steps import STEPS
from controlplane.settings.model import Config

SOURCES = Path(__file__).resolve().parents[4] / "controlplane"
CALL = re.compile(r"reach\(\"([a-z.]+)\"\)")


def test_every_step_in_the_source_has_its_name_in_the_list() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in CALL.findall(path.read_text())]
    assert sorted(found) == sorted(STEPS)


@pytest.mark.parametrize("setting", ["start.answered", "no:kill"])
def test_unknown_failpoints_are_refused(setting: str) -> None:
    with pytest.raises(ValidationError, match=r"failpoint\n.*must be NAME:ACTION, .* of start"):
        Config(failpoint=setting)
