import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from agent.state.record import Records
from tests.agent.acknowledging import STARTS
from tests.faults.plugin import Figure, Rounds
from tests.support import power_cut
from tiltyard.contract import EndReason, State


def _logged(library: Path, folder: Path, *without: str) -> list[power_cut.Deed]:
    module = "tests.agent.acknowledging"
    return power_cut.logged(library, folder, [sys.executable, "-m", module, str(folder), *without])


def _lost(
    deeds: Sequence[power_cut.Deed], at: Iterable[int], survives: power_cut.Survives, folder: Path
) -> list[str]:
    """Return acknowledged changes that are lost by power cuts before the deeds at `at`."""
    lost = []
    for number, (acknowledged, files) in enumerate(power_cut.cuts(deeds, at, survives)):
        state = folder / f"cut-{number}"
        power_cut.put(files, state)
        lost += asyncio.run(_missing(acknowledged, state))
    return lost


async def _missing(acknowledged: list[str], state: Path) -> list[str]:
    """Return the acknowledged changes that the next run of the agent does not find."""
    records = Records(state)
    await records.open()
    try:
        sessions = {each.internal_id: each for each in (await records.load())[0]}
        revision = (await records.load_drain()).revision
    finally:
        await records.close()

    def is_there(what: str, which: str) -> bool:
        match what:
            case "started" | "executed":
                return which in sessions and sessions[which].state is not State.CREATED
            case "prepared":
                return which in sessions and sessions[which].prepared != ""
            case "claimed":
                return which in sessions and sessions[which].claim is not None
            case "stopped":
                return which in sessions and sessions[which].end_reason is EndReason.STOPPED
            case _:
                return int(which) <= revision

    return [line for line in acknowledged if not is_there(*line.split())]


@pytest.mark.part_alone
@pytest.mark.timeout(600)
def test_f49_answered_changes_survive_a_power_cut(
    tmp_path: Path, disk_log: Path, rounds: Rounds, chance: Random, figure: Figure
) -> None:
    deeds = _logged(disk_log, tmp_path / "run")
    acknowledged, _ = next(power_cut.cuts([*deeds, deeds[0]], [len(deeds)], power_cut.everything))
    executed = [line for line in acknowledged if line.startswith("executed")]
    assert len(executed) >= 2 * STARTS
    prepared = [line for line in acknowledged if line.startswith("prepared")]
    assert len(prepared) == STARTS - 1
    assert len(acknowledged) - len(executed) == 3 * STARTS + 1
    at = chance.sample(range(len(deeds)), min(len(deeds), rounds(40, 400)))
    # Most is at risk immediately after each acknowledgement.
    at += [number + 1 for number, deed in enumerate(deeds) if deed.name == power_cut.ACKNOWLEDGED]
    for name, survives in (("nothing", power_cut.nothing), ("by-chance", power_cut.by(chance))):
        folder = tmp_path / name
        folder.mkdir()
        assert _lost(deeds, at, survives, folder) == []
    figure("power cuts", 2 * len(at))


@pytest.mark.parametrize("what", ["files", "folders"])
def test_detects_lost_changes_without_fsync(tmp_path: Path, disk_log: Path, what: str) -> None:
    deeds = _logged(disk_log, tmp_path / "run", what)
    at = [number + 1 for number, deed in enumerate(deeds) if deed.name == power_cut.ACKNOWLEDGED]
    assert _lost(deeds, at, power_cut.nothing, tmp_path)
