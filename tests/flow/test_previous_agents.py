"""The control plane works with agents that know only a released contract.

Both directions are filtered by that contract (tests/contract/previous.py): neither side may depend
on newer fields.
"""

import tarfile
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from agent.domain.containers.engine import container_name
from tests.contract.formats import NUMBERS, released
from tests.contract.previous import Previous, WholeBehind
from tests.support.controlplane.system import assert_error, eventually


@pytest.fixture(params=NUMBERS)
async def whole(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WholeBehind]:
    files = released(request.param)
    async with WholeBehind(tmp_path, lambda target: Previous(target, files)) as whole:
        await whole.make_game()
        yield whole


async def _started(whole: WholeBehind, session_id: str, **fields: Any) -> str:
    """Start a session; return the name of its container."""
    (await whole.start(id=session_id, **fields)).expect(201)
    [(internal_id,)] = await whole.rows("SELECT internal_id FROM session WHERE id=?", session_id)
    return container_name(internal_id)


async def test_session_from_start_to_report(whole: WholeBehind) -> None:
    container = await _started(whole, "duel", args=["-x"], env={"A": "b"}, ttl="1h", labels={})
    assert await whole.status_of("duel") == "running"
    assert (await whole.start(id="duel")).status == 409
    whole.engine.write_log(container, b"one\n")
    whole.engine.find(container).put_file("/data/replay", b"replay")
    assert (await whole.call("GET", "/logs?id=duel")).body == b"one\n"
    assert (await whole.call("DELETE", "/session/duel")).status == 204

    async def log_is_kept() -> bool:
        report = (await whole.call("GET", "/session/duel/report")).json
        assert report["end_reason"] == "stopped"
        return bool(report["log"] == "one\n")

    await eventually(log_is_kept)
    artifact = (await whole.call("GET", "/artifacts?session=duel&path=/data")).expect(200)
    with tarfile.open(fileobj=BytesIO(artifact.body)) as tar:
        assert "data/replay" in tar.getnames()
    assert_error(await whole.call("GET", "/artifacts?session=duel&path=/none"), 404)


def _without(files: FileDescriptorSet, message: str, field: str) -> None:
    [file] = [each for each in files.file if each.name.startswith("tiltyard/")]
    [kind] = [each for each in file.message_type if each.name == message]
    kind.field.remove(next(each for each in kind.field if each.name == field))


async def test_previous_agent_neither_reads_nor_sends_newer_fields(tmp_path: Path) -> None:
    """The filter works: a field missing from the contract is missing in messages."""
    files = released("1")
    _without(files, "SessionSpec", "args")
    _without(files, "Session", "host")
    [file] = [each for each in files.file if each.name.startswith("tiltyard/")]
    [method] = [each for each in file.service[0].method if each.name == "GetReport"]
    file.service[0].method.remove(method)
    async with WholeBehind(tmp_path, lambda target: Previous(target, files)) as whole:
        await whole.make_game()
        answer = await whole.start(id="duel", args=["-x"])
        assert answer.status == 201
        assert answer.json["host"] == ""
        [held] = whole.engine.all
        assert held.starts[-1].program[1:] == ()
        assert (await whole.call("DELETE", "/session/duel")).status == 204
        assert_error(await whole.call("GET", "/session/duel/report"), 503)
        assert whole.behind.proxy.unknown == {"GetReport", "SetShapes"}  # type: ignore[attr-defined]  # of Previous
