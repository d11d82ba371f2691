"""What an operator has after First steps of docs/operations.md, on a whole Debian 13."""

import pytest

from tests.demo_game.player import saved
from tests.docker.stack import play_round
from tests.host.whole_host import WholeHost

pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(3000)]


def test_doctor_finds_no_failures(host: WholeHost) -> None:
    found = host.system.run("tiltyard-agent", "doctor")
    assert "0 FAIL" in found
    for check in ("apparmor", "seccomp", "cgroups", "live-restore", "firewall", "agent"):
        assert f"OK    {check} " in found, found


def test_plays_the_first_session(host: WholeHost) -> None:
    made = host.start()
    session_id = made["id"]
    host.until_ready()
    play_round(made)
    assert host.status(session_id) == "running"
    host.end(session_id)
    assert host.report(session_id)["end_reason"] == "stopped"
    archive = host.client.get("/artifacts", session=session_id, path="/data").expect(200).body
    assert saved(archive)["session"] == session_id
    log = host.client.get("/logs", id=session_id).expect(200).body
    assert log.startswith(b"000001 ")
