"""Limits of a running session on cgroup v2 with systemd, which other programs have lifted."""

import json

import pytest

from tests.docker.stack import eventually, play_round
from tests.host.invariants import assert_survived
from tests.host.load import QUIET
from tests.host.whole_host import WholeHost

pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(7200)]

_GROUP = 'cd "/sys/fs/cgroup$(cut --delimiter=: --fields=3 "/proc/$0/cgroup")"\n'
_SHOW = "grep --with-filename . memory.max memory.swap.max cpu.max pids.max\n"
_LIFT = "echo max > memory.swap.max\n"


def first_process(host: WholeHost, session_id: str) -> str:
    """The id of the first process of a session."""
    lines = host.system.run("tiltyard-agent", "sessions", "--json").splitlines()
    sessions = [json.loads(line) for line in lines]
    [pid] = [each["pid"] for each in sessions if each["identity"]["session_id"] == session_id]
    return str(pid)


def test_limits_are_set_again_after_a_reload_of_systemd(host: WholeHost) -> None:
    made = host.start(args=QUIET)
    host.until(made["id"], "running")
    pid = first_process(host, made["id"])

    def limits() -> str:
        return host.system.run("bash", "-euc", _GROUP + _SHOW, pid)

    before = limits()
    assert "memory.swap.max:0\n" in before
    host.system.run("systemctl", "daemon-reload")
    eventually(lambda: limits() == before, "the limits are as before", patience=host.patience)
    # The reload has lifted a limit or not, by the versions of systemd and of the engine.
    host.system.run("bash", "-euc", _GROUP + _LIFT, pid)
    eventually(lambda: limits() == before, "the limits are set again", patience=host.patience)
    play_round(made)
    assert_survived(host)
