from pathlib import Path
from typing import Any, cast

import pytest

from controlplane.retention.upkeep import Upkeep
from controlplane.settings.model import Config
from tests.support.fake_clock import FakeClock


class FailingStore:
    """A store whose first transaction raises an error that nobody expects."""

    def __init__(self) -> None:
        self.removed = 0

    async def run_in_portions(self, *_: Any) -> None:
        self.removed += 1
        if self.removed == 1:
            raise RuntimeError("as scripted")

    async def run(self, *_: Any, **__: Any) -> None:
        """Remove a portion of events, the last one."""
        self.removed += 1


async def test_other_kinds_are_removed_after_an_unexpected_error_of_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingStore()
    upkeep = Upkeep(cast("Any", store), Config(state_dir=tmp_path), FakeClock())
    await upkeep.forget()
    assert store.removed == 8
    assert caplog.messages == ["cannot delete old data: internal error kind=confirmed stops"]
