"""Reports of real sessions through the public API."""

from typing import Any

import pytest

from tests.docker.stack import Stack, eventually

MEBIBYTE = 2**20
OOM_TRIES = 5  # A busy host may miss OOM kills (docs/api.md), but not all of these


def statuses(report: dict[str, Any]) -> list[str]:
    return [moment["status"] for moment in report["timeline"]]


def test_report_of_failed_game_has_exit_code_log_and_usage(shared_stack: Stack) -> None:
    lives = shared_stack.start()["id"]
    shared_stack.client.get(f"/session/{lives}/report").expect(409)
    shared_stack.end(lives)
    flood = ["--flood", "0", "--flood-bytes", str(4 * MEBIBYTE)]
    made = shared_stack.start(args=["--exit-after", "2", "--exit-code", "7", *flood])
    report = shared_stack.report(made["id"])
    assert report["id"] == made["id"]
    assert report["status"] == "exited"
    assert report["end_reason"] == "exited"
    assert report["exitCode"] == 7
    assert report["signal"] is None
    assert report["oomKilled"] is False
    assert statuses(report) == ["created", "running", "exited"]
    assert report["created"] <= report["timeline"][1]["time"] < report["ended"]
    assert 0 < report["cpuSeconds"] < 60
    assert 0 < report["peakMemoryBytes"] <= 64 * MEBIBYTE
    log = shared_stack.client.get("/logs", id=made["id"]).expect(200).body
    assert report["logTruncated"] is True
    assert report["log"].encode() == log[-len(report["log"]) :]
    assert len(report["log"]) > 2**17 - 200


def test_report_of_killed_game_says_out_of_memory(shared_stack: Stack) -> None:
    small = {"cpu": 1, "ram": 24}
    shared_stack.make_game("small", limits=small, reservation=small)
    # It lives for a second or two: the cause of shorter runs may stay unknown.
    asked = ["--write-file", "/dev/null", f"{4 * 10**12}"]
    asked += ["--write-file", "/dev/shm/much", str(60 * MEBIBYTE)]
    for _ in range(OOM_TRIES):
        report = shared_stack.report(shared_stack.start(image="small", args=asked)["id"])
        assert report["exitCode"] == 137
        assert report["signal"] == 9
        assert 0 < report["peakMemoryBytes"] <= 24 * MEBIBYTE
        if report["oomKilled"] and report["peakMemoryBytes"] > 20 * MEBIBYTE:
            break
    assert report["end_reason"] == "oom"
    assert report["oomKilled"] is True
    assert report["peakMemoryBytes"] > 20 * MEBIBYTE


@pytest.mark.slow
def test_report_of_crash_loop_has_each_run_and_total_usage(stack: Stack) -> None:
    crash = ["--exit-after", "0.3", "--exit-code", "1"]
    made = stack.start(args=crash, restart=True)
    eventually(lambda: stack.record()["restart_count"] >= 2, "it is restarted")
    used = stack.record()["earlier_usage"]["cpu_seconds"]
    stack.restart_agent()  # records survive the kill
    eventually(lambda: len(stack.record()["failed_runs"]) >= 3, "the next agent continues")
    stack.end(made["id"])
    report = stack.report(made["id"])
    runs = report["failedRuns"]
    assert report["restartCount"] >= 2
    assert len(runs) in {report["restartCount"], report["restartCount"] + 1}
    assert [run["delaySeconds"] for run in runs[:3]] == [1, 2, 4]
    assert {run["exitCode"] for run in runs} == {1}
    assert all(run["started"] < run["ended"] for run in runs)
    assert statuses(report)[:3] == ["created", "running", "restarting"]
    assert statuses(report)[-2:] == ["shuttingdown", "exited"]
    assert report["cpuSeconds"] >= used - 1e-6 > 0
    assert report["end_reason"] == "stopped"


@pytest.mark.slow
def test_report_survives_its_container_and_a_kill_of_the_agent_while_sealing(stack: Stack) -> None:
    made = stack.start()
    stack.agent.settings |= {"failpoint": "log.sealed:kill", "container_retention_hours": 0}
    stack.agent.restart()
    stack.client.request("DELETE", f"/session/{made['id']}")
    eventually(lambda: stack.agent.process.returncode == -9, "it is killed there")
    [container] = stack.containers().values()
    assert container.status == "exited"
    stack.restart_agent()
    eventually(lambda: stack.containers() == {}, "its container is removed")
    path = f"/session/{made['id']}/report"
    eventually(lambda: stack.client.get(path).status == 200, "the agent is connected again")
    report = stack.report(made["id"])
    assert report["end_reason"] == "stopped", report["log"]
    assert report["exitCode"] == 0, report["log"]
    assert report["cpuSeconds"] > 0
    assert report["log"].endswith("SIGTERM: saving\n")
