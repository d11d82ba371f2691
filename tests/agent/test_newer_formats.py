"""State of a newer agent or another user is neither misread nor lost."""

import os
import re
import shutil
from pathlib import Path

import pytest

from agent.state.record import Records
from agent.state.state_format import NewerStateError, another_owner
from tests.agent.test_doctor import run
from tests.agent.test_formats import FORMATS
from tests.agent.writing import RUNNING
from tiltyard.runtime.settings import EXIT_CONFIG


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A state directory of a newer agent."""
    state = tmp_path / "state"
    shutil.copytree(FORMATS / "1" / "state", state)
    (state / "spool").mkdir(exist_ok=True)
    (state / "spool" / "artifact").touch()
    (state / "format").write_text("2\n")
    return state


def _content(folder: Path) -> dict[Path, bytes]:
    kept = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in kept}


async def test_agent_does_not_change_newer_state(newer: Path) -> None:
    before, records = _content(newer), Records(newer)
    with pytest.raises(
        NewerStateError, match=r"a newer version has run on .* sessions keep running"
    ):
        await records.open()
    await records.close()
    assert _content(newer) == before


def test_serve_and_doctor_report_a_newer_format(newer: Path) -> None:
    result = run(newer.parent, "serve")
    assert result.exit_code == EXIT_CONFIG, result.output
    assert f"it does not start: a newer version has run on {newer}" in result.stderr
    result = run(newer.parent, "doctor")
    assert re.search(
        r"^FAIL  state-format +a newer version has run on", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("text", ["1\n", "", "x", None])
async def test_start_writes_state_format(tmp_path: Path, text: str | None) -> None:
    shutil.copytree(FORMATS / "1" / "state", tmp_path / "state")
    path = tmp_path / "state" / "format"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    records = Records(tmp_path / "state")
    await records.open()
    assert path.read_text() == "1\n"
    sessions, damaged = await records.load()
    assert RUNNING in {session.internal_id for session in sessions}
    assert damaged == []
    await records.close()


@pytest.mark.root
@pytest.mark.parametrize(("user", "name"), [(65534, "nobody"), (65533, "the user 65533")])
def test_does_not_start_in_folder_of_another_user(tmp_path: Path, user: int, name: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, user, user)
    refused = run(tmp_path, "serve")
    assert refused.exit_code == EXIT_CONFIG
    assert f"it does not start: {state} belongs to {name}: run as" in refused.stderr
    assert list(state.iterdir()) == []


@pytest.mark.root
def test_accepts_own_or_missing_folder(tmp_path: Path) -> None:
    assert another_owner(tmp_path) == another_owner(tmp_path / "none") == ""
