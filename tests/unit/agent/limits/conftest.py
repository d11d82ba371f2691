import pytest


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.limits.log_limits.SAMPLE_PIECES", 20)
