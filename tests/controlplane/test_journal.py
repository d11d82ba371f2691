"""The control plane's own log: what callers send stays in fields, and repetitions are limited."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.cli.server import LIMITED
from controlplane.http.errors import REFUSED
from tests.support.controlplane.system import System, eventually
from tests.support.log_lines import logfmt
from tiltyard.runtime.logging.events import Event
from tiltyard.runtime.logging.output import AT_ONCE, written

pytestmark = pytest.mark.system(application={})


@contextmanager
def logged(path: Path) -> Iterator[list[dict[str, str]]]:
    """Write the log to a file meanwhile; at the end the list has its lines."""
    lines: list[dict[str, str]] = []
    with (
        path.open("wb") as file,
        written("info", "logfmt", limited=LIMITED, descriptor=file.fileno()),
    ):
        yield lines
    lines += map(logfmt, path.read_text("utf-8").splitlines())


async def test_repeated_refusals_are_limited_but_no_others(system: System, tmp_path: Path) -> None:
    with logged(tmp_path / "log") as lines:
        for number in range(5 * AT_ONCE):
            await system.call("GET", f"/session/none-{number}")
        await system.call("GET", "/session", token="ty_wrong")
    refused = [line for line in lines if line["event"] == REFUSED]
    assert [line["status"] for line in refused] == ["404"] * AT_ONCE + ["401"]


async def test_success_is_not_logged(system: System, tmp_path: Path) -> None:
    [host] = system.control_plane.fleet.hosts
    reported_at = host.reported_at
    with logged(tmp_path / "log") as lines:
        for path in ("/session", "/application", "/healthz", "/readyz", "/region"):
            await system.call("GET", path)
        system.agent.send_snapshot()
        await eventually(lambda: host.reported_at != reported_at)
    # The application is new: its image may still be on its way.
    assert [line for line in lines if line["event"] != "image pulled"] == []


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
