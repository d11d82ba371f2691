"""Both programs of a whole machine are replaced while sessions are started and played."""

from functools import partial

import pytest

from tests.docker.procedures import commands
from tests.docker.stack import eventually, play_round
from tests.host.invariants import assert_survived
from tests.host.load import QUIET, Load
from tests.host.whole_host import WARM_POOL, Shell, WholeHost
from tests.systemd.installed import AGENT, CONTROL_PLANE, UNITS, make, upgraded_sources

pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(7200)]

PROGRAMS = {"controlplane": CONTROL_PLANE, "agent": AGENT}


def versions(host: WholeHost) -> set[str]:
    return {host.system.run(unit, "--version").split()[-1] for unit in UNITS}


def test_f55_upgrade_and_back_disturb_no_session(host: WholeHost) -> None:
    with Load(host) as load:
        load.plays(1)
        made = host.start(args=QUIET)
        before = versions(host)
        newer = upgraded_sources(host.system)
        for program in PROGRAMS:
            make(host.system, f"install-{program}")
        installed = versions(host)
        assert installed == {newer}
        assert installed != before
        host.until_ready()
        load.plays(1)
        for program in PROGRAMS:
            host.system.run(f"/opt/tiltyard/{program}/systemd/install", "back", program)
        assert versions(host) == before
        host.until_ready()
        load.plays(1)
        play_round(made)
        assert host.status(made["id"]) == "running"
    assert_survived(host)


def test_f55_what_was_uninstalled_can_be_installed_again(host: WholeHost) -> None:
    shell = Shell(host.system)
    [uninstall_agent, uninstall_control_plane] = commands("Install")
    kept = host.start(args=QUIET)["id"]
    code, output = shell.attempt(uninstall_agent)
    assert code != 0
    assert "sessions run here" in output
    host.client.request("DELETE", WARM_POOL).expect(204)
    host.end_all()
    live = partial(host.system.run, AGENT, "sessions", "--json")
    eventually(lambda: not live(), "all has ended", patience=host.patience)
    for line in (uninstall_agent, uninstall_control_plane):
        shell.type(line)
    for program in PROGRAMS:
        make(host.system, f"install-{program}")
    host.system.run("systemctl", "start", *UNITS)
    host.until_ready()
    assert host.status(kept) == "exited"
    host.keep_standby()
    assert_survived(host)
