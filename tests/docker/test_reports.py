"""How real sessions ended, as their reports tell it through the public API."""

from typing import Any

import pytest

from tests.docker.stack import Stack, eventually
from tests.support.deployment import application, enable_tag

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.root]

MEBIBYTE = 2**20
MOST_MISSED = 5
"""OOM kills in a row that a busy host misses, as it may (docs/api.md):
the engine removes a container's group within moments."""


def report_of(stack: Stack, session_id: str) -> dict[str, Any]:
    """The report of a session, once its host has told the control plane of its end."""
    eventually(lambda: stack.status(session_id) in {"exited", "dead"}, "it ends")
    report = stack.client.get(f"/session/{session_id}/report").expect(200).json()
    assert isinstance(report, dict)
    return report


def statuses(report: dict[str, Any]) -> list[str]:
    return [moment["status"] for moment in report["timeline"]]


def test_a_game_that_fails_tells_its_exit_code_its_log_and_what_it_used(stack: Stack) -> None:
    flood = ["--flood", "0", "--flood-bytes", str(4 * MEBIBYTE)]
    made = stack.start(args=["--exit-after", "2", "--exit-code", "7", *flood])
    stack.client.get(f"/session/{made['id']}/report").expect(409)
    report = report_of(stack, made["id"])
    assert (report["id"], report["status"], report["end_reason"]) == (
        made["id"],
        "exited",
        "exited",
    )
    assert (report["exitCode"], report["signal"], report["oomKilled"]) == (7, None, False)
    assert statuses(report) == ["created", "running", "exited"]
    assert report["created"] <= report["timeline"][1]["time"] < report["ended"]
    assert 0 < report["cpuSeconds"] < 60
    assert 0 < report["peakMemoryBytes"] <= 64 * MEBIBYTE
    log = stack.client.get("/logs", id=made["id"]).expect(200).body
    assert report["logTruncated"] is True
    assert report["log"].encode() == log[-len(report["log"]) :]
    assert len(report["log"]) > 2**17 - 200


@pytest.mark.timeout(180)
def test_a_game_that_wants_too_much_memory_tells_so(stack: Stack) -> None:
    small = {"cpu": 1, "ram": 24}
    stack.client.post(
        "/application", application("small", limits=small, reservation=small)
    ).expect(201)
    enable_tag(stack.client, "small", stack.image.tag)
    # It lives for a second or two before: of shorter runs the cause may never be known.
    asked = ["--write-file", "/dev/null", f"{4 * 10**12}"]
    asked += ["--write-file", "/dev/shm/much", str(60 * MEBIBYTE)]
    for _ in range(MOST_MISSED):
        report = report_of(stack, stack.start(image="small", args=asked)["id"])
        assert (report["exitCode"], report["signal"]) == (137, 9)
        assert 0 < report["peakMemoryBytes"] <= 24 * MEBIBYTE
        if report["oomKilled"] and report["peakMemoryBytes"] > 20 * MEBIBYTE:
            break
    assert (report["end_reason"], report["oomKilled"]) == ("oom", True)
    assert report["peakMemoryBytes"] > 20 * MEBIBYTE
