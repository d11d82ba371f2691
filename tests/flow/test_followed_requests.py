"""A request and a session can be followed through the logs of both programs."""

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.flow.enrolled import Enrolling
from tests.flow.whole import Whole
from tests.support.controlplane.system import eventually
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.contract import REQUEST_KEY

UUID = "3b241101-e2bb-4255-8caf-4136c566a962"


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def logged(
    caplog: pytest.LogCaptureFixture, event: str, begin: int = 0
) -> dict[str, dict[str, Any]]:
    """The fields of an event by the program that logs it, once each."""
    said = ((line.name.partition(".")[0], line.msg) for line in caplog.records[begin:])
    found = [(name, fields) for name, fields in said if isinstance(fields, dict)]
    of_it = [(name, fields) for name, fields in found if fields["event"] == event]
    assert len(dict(of_it)) == len(of_it)
    return dict(of_it)


async def test_a_session_is_followed_by_the_identifier_of_the_answer(
    whole: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    request = (await whole.start(id="match-1")).headers["X-Request-Id"]
    lines = logged(caplog, "session started")
    here = lines["controlplane"]
    there = lines["agent"]
    both = {"id": "match-1", "account": "alice", "application": "game", "request": request}
    for fields in (here, there):
        assert fields.items() >= both.items()
    assert here["session"] == there["session"]
    assert here["agent"] == "host-1"
    assert here["region"] == "local"
    assert here["warm"] is False
    stopped = await whole.call("DELETE", "/session/match-1")
    assert stopped.headers["X-Request-Id"] != request
    [stop] = logged(caplog, "session stopped").values()
    assert stop["session"] == here["session"]
    assert stop["request"] == stopped.headers["X-Request-Id"]
    await eventually(lambda: logged(caplog, "session ended") != {})
    [end] = logged(caplog, "session ended").values()
    assert end["session"] == here["session"]
    assert end["reason"] == "stopped"
    assert "request" not in end


async def test_work_that_outlives_its_request_does_not_log_its_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A host is followed from its enrolment on, which is a request with an id."""
    async with Enrolling(tmp_path) as system:
        await system.joined("host-1")
        enrolled = logged(caplog, "agent enrolled")["controlplane"]
        followed = logged(caplog, "reconciled")["controlplane"]
    assert enrolled["request"]
    assert followed["agent"] == "host-1"
    assert "request" not in followed


async def test_agent_logs_only_valid_ids(whole: Whole, caplog: pytest.LogCaptureFixture) -> None:
    hostile = (UUID.upper(), UUID[:-1], UUID + "0", "x level=error", "a" * 4000)
    async with grpc.aio.insecure_channel(whole.host.address) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call,unused-ignore]
        for sent in (UUID, *hostile, None):
            begin = len(caplog.records)
            metadata = ((REQUEST_KEY, sent),) if sent is not None else ()
            request = pb.GetReportRequest(internal_id=UUID)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.GetReport(request, metadata=metadata, timeout=10)
            [refused] = logged(caplog, "call refused", begin).values()
            assert refused["reason"] == "SESSION_NOT_FOUND"
            assert refused.get("request") == (sent if sent == UUID else None)
