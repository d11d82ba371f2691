"""The end of a control plane."""

import pytest

from tests.support.controlplane.system import System
from tests.support.hold import held_before


async def test_stop_that_does_not_end_names_what_is_open(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = system.control_plane.store
    gate = held_before(store, "close")
    system._stopping.set()
    await gate.reached.wait()
    monkeypatch.setattr("tests.support.controlplane.system.PATIENCE", 0.0)
    with pytest.raises(AssertionError, match=r"_close \(control_plane.py:\d+\) > held"):
        await system.stop_serving()
    gate.set()
    await store.close()
