import pytest

from agent.doctor.agent_checks import source_address
from agent.doctor.facts import Level, SourceFacts


@pytest.mark.parametrize(
    ("source", "level", "text"),
    [
        (SourceFacts("192.0.2.1"), Level.OK, "192.0.2.1"),
        (SourceFacts(""), Level.OK, "none has public_address"),
        (SourceFacts("192.0.2.1", "Invalid argument"), Level.WARN, "nftables: Invalid argument"),
    ],
)
def test_source_address_needs_nftables(source: SourceFacts, level: Level, text: str) -> None:
    finding = source_address(source)
    assert finding.level is level
    assert text in finding.found
