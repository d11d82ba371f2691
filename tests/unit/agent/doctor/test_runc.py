import re

import pytest

from agent.doctor.facts import Level
from tests.unit.agent.doctor.test_checks import FAIL, OK, SOUND, WARN, changed, found


@pytest.mark.parametrize(
    ("version", "level", "text"),
    [
        ("1.1.11", FAIL, "CVE-2024-21626, CVE-2025-31133"),
        ("1.1.15", FAIL, "has CVE-2025-31133"),
        ("1.1.5+ds1", WARN, "CVE-2024-21626"),
        ("1.2.7", FAIL, "CVE-2025-31133"),
        ("1.2.8", WARN, "1.2.8, which gets no more fixes from upstream"),
        ("1.3.6", WARN, "1.3.6, which gets no more fixes from upstream"),
        ("1.3.6+ds1", OK, "1.3.6"),
        ("1.3.2-0ubuntu1", WARN, "CVE-2025-31133"),
        ("1.4.0-rc.2", FAIL, "CVE-2025-31133"),
        ("1.4.0-rc.3", OK, "1.4.0"),
        ("2.0.0", OK, "2.0.0"),
        ("", WARN, "cannot be read"),
    ],
)
def test_runc_has_the_fixes_of_escapes_and_gets_more(
    version: str, level: Level, text: str
) -> None:
    finding = found(changed(SOUND, "engine.runc", version), "runc")
    assert finding.level is level
    assert re.search(text, finding.found)
    assert bool(finding.hint) is (level is not OK)
