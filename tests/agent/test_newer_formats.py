"""What a newer agent wrote is neither misread nor lost; what an older one wrote is brought up."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.domain.pools import WarmPool
from agent.state.record import Records
from agent.state.state_format import POOLS, NewerStateError
from agent.state.versioned_json import Envelope, NewerFormatError
from tests.agent.test_doctor import run
from tests.agent.test_formats import FORMATS
from tests.agent.writing import ENDED, MARKED, RUNNING
from tests.support.agent.pools import POOL
from tiltyard.runtime.settings.report import EXIT_CONFIG


def _second(content: Any) -> Any:
    return {"seconds": content["minutes"] * 60}


def _third(content: Any) -> Any:
    return content | {"unit": "s"}


def test_what_is_of_an_older_format_is_brought_up_step_by_step() -> None:
    first: Envelope[dict[str, Any]] = Envelope("span", dict)
    third: Envelope[dict[str, Any]] = Envelope("span", dict, _second, _third)
    assert json.loads(third.encode({})) == {"format": 3, "span": {}}
    assert third.decode(first.encode({"minutes": 2})) == {"seconds": 120, "unit": "s"}
    assert third.decode(b'{"format":2,"span":{"seconds":9}}') == {"seconds": 9, "unit": "s"}
    assert third.decode(b'{"format":3,"span":{"seconds":9}}') == {"seconds": 9}


@pytest.mark.parametrize("number", ["0", "-1", "true", "1.0", '"1"', "null"])
def test_a_format_is_a_number_from_one(number: str) -> None:
    envelope: Envelope[dict[str, Any]] = Envelope("span", dict, _second)
    with pytest.raises(ValueError, match="is not a valid span") as caught:
        envelope.decode(f'{{"format":{number},"span":{{"minutes":1}}}}'.encode())
    assert not isinstance(caught.value, NewerFormatError)


def test_a_newer_format_says_which_it_is_and_which_is_known() -> None:
    envelope: Envelope[dict[str, Any]] = Envelope("span", dict, _second)
    with pytest.raises(
        NewerFormatError, match="the span has format 3, and this agent reads up to 2"
    ):
        envelope.decode(b'{"format":3,"span":{}}')


def _raise_format(path: Path) -> None:
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"format": 2}))


def _newer_directory(state: Path) -> None:
    (state / "format").write_text("2\n")


def _newer_drain(state: Path) -> None:
    _raise_format(state / "drain.json")


def _newer_session(state: Path) -> None:
    _raise_format(state / "sessions" / MARKED / "record.json")


def _newer_ended_session(state: Path) -> None:
    _raise_format(state / "sessions" / ENDED / "record.json")


def _newer_pool(state: Path) -> None:
    (state / "pools").mkdir()
    (state / "pools" / f"{POOL}.json").write_bytes(POOLS.encode(WarmPool(POOL, 1, 0)))
    _raise_format(state / "pools" / f"{POOL}.json")


@pytest.fixture(
    params=[_newer_directory, _newer_drain, _newer_pool, _newer_session, _newer_ended_session]
)
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state directory on which a newer agent has run."""
    state = tmp_path / "state"
    shutil.copytree(FORMATS / "1" / "state", state)
    (state / "spool").mkdir(exist_ok=True)
    (state / "spool" / "artifact").touch()
    request.param(state)
    return state


def _content(folder: Path) -> dict[Path, bytes]:
    kept = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in kept}


async def test_an_agent_does_not_touch_what_a_newer_one_wrote(newer: Path) -> None:
    before, records = _content(newer), Records(newer)
    with pytest.raises(NewerStateError, match=r"a newer version has run on .* sessions run on"):
        await records.open()
    await records.close()
    assert _content(newer) == before


def test_serve_says_so_and_is_not_worth_another_try(newer: Path) -> None:
    result = run(newer.parent, "serve")
    assert result.exit_code == EXIT_CONFIG, result.output
    assert f"it does not start: a newer version has run on {newer}" in result.stderr


def test_the_doctor_finds_it(newer: Path) -> None:
    result = run(newer.parent, "doctor")
    assert re.search(
        r"^FAIL  state-format +a newer version has run on", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("text", ["1\n", "", "x", None])
async def test_a_state_directory_says_its_format_from_the_next_start_on(
    tmp_path: Path, text: str | None
) -> None:
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


async def test_damaged_files_do_not_keep_an_agent_from_starting(tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(FORMATS / "1" / "state", state)
    for damaged in ("drain.json", f"sessions/{ENDED}/record.json"):
        (state / damaged).write_bytes(b'{"format":')
    records = Records(state)
    await records.open()
    assert (await records.load())[1] == [ENDED]
    await records.close()
