"""The control plane's own log: what callers send stays in fields, and repetitions are limited."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.cli.server import LIMITED
from controlplane.http.errors import REFUSED
from tests.support.controlplane.system import System, eventually
from tests.support.log_lines import logfmt
from tiltyard.runtime.logging.events import Event
from tiltyard.runtime.logging.output import AT_ONCE, written

pytestmark = pytest.mark.system(application={})


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Callable[[str], Callable[[], list[dict[str, str]]]]]:
    """Begin to write the log at a level; what that gives ends it and reads it."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)

    def begin(level: str) -> Callable[[], list[dict[str, str]]]:
        writing = written(level, "logfmt", limited=LIMITED, descriptor=descriptor)
        writing.__enter__()

        def end() -> list[dict[str, str]]:
            writing.__exit__(None, None, None)
            return [logfmt(line) for line in path.read_text("utf-8").splitlines()]

        return end

    yield begin
    os.close(descriptor)


async def test_repeated_refusals_are_limited_and_hide_no_others(
    system: System, output: Callable[[str], Callable[[], list[dict[str, str]]]]
) -> None:
    end = output("info")
    for number in range(5 * AT_ONCE):
        await system.call("GET", f"/session/none-{number}")
    await system.call("GET", "/session", token="ty_wrong")
    refused = [line for line in end() if line["event"] == REFUSED]
    assert [line["status"] for line in refused] == ["404"] * AT_ONCE + ["401"]


async def test_success_is_not_logged(
    system: System, output: Callable[[str], Callable[[], list[dict[str, str]]]]
) -> None:
    [host] = system.control_plane.fleet.hosts
    reported_at = host.reported_at
    end = output("info")
    for path in ("/session", "/application", "/healthz", "/readyz", "/region"):
        await system.call("GET", path)
    system.agent.send_snapshot()
    await eventually(lambda: host.reported_at != reported_at)
    # The application is new: its image may still be on its way.
    assert [line for line in end() if line["event"] != "image pulled"] == []


async def test_a_request_answered_at_debug_has_what_it_was(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await system.call("GET", "/session")
    [line] = [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, Event) and record.msg["event"] == "request answered"
    ]
    assert line["request"] == answer.headers["X-Request-Id"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/session", 200)
    assert line["account"] == "alice"
