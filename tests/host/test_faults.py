"""Faults of a whole machine, while sessions are started, claimed, stopped and played."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from tests.docker.stack import eventually, play_round, udp_port_of
from tests.docker.test_reports import OOM_TRIES
from tests.faults.plugin import Figure, Rounds
from tests.host.invariants import assert_survived, translated_ports
from tests.host.load import QUIET, Load
from tests.host.time_server import TimeServer
from tests.host.whole_host import WholeHost
from tests.systemd.installed import UNITS
from tiltyard.runtime.clock import HELD_SECONDS

pytestmark = [pytest.mark.host, pytest.mark.root, pytest.mark.registry, pytest.mark.timeout(7200)]

UnderLoad = Callable[[], AbstractContextManager[Load]]

_LATEST_CUT = 3.0  # Seconds after a start at which the power is cut at the latest
_MEBIBYTE = 2**20
_FAR = 86_400


@pytest.fixture
def under_load(host: WholeHost, figure: Figure) -> Iterator[UnderLoad]:
    """A context with load, after which the host must serve and everything be right."""
    longest = 0.0

    @contextmanager
    def loaded() -> Iterator[Load]:
        nonlocal longest
        with Load(host) as load:
            load.plays(1)
            yield load
            load.plays(1)
        longest = max(longest, load.longest_gap)
        assert not [each for each in load.failures if ": 500 " in each]
        assert_survived(host)

    yield loaded
    figure("longest time without a start", f"{longest:.0f} s")


def test_f45_power_cut_of_whole_machine(
    host: WholeHost, under_load: UnderLoad, rounds: Rounds, chance: Random
) -> None:
    for _ in range(rounds(1, 20)):
        with under_load():
            time.sleep(chance.uniform(0, _LATEST_CUT))
            host.system.cut_power()
            host.system.power_on()


def test_f45_reboot_of_whole_machine(host: WholeHost, under_load: UnderLoad) -> None:
    with under_load():
        host.system.reboot()


def test_f45_reboot_of_whole_machine_keeps_sources_of_packets(host: WholeHost) -> None:
    made = host.start(args=QUIET, restart=True)
    assert udp_port_of(made) in translated_ports(host)
    host.system.reboot()
    host.until_ready()
    host.until(made["id"], "running")
    assert udp_port_of(made) in translated_ports(host)
    _restart_engine(host)
    host.until_ready()
    assert udp_port_of(made) in translated_ports(host)
    play_round(made)
    assert_survived(host)


@pytest.mark.parametrize("years", [-10, 10])
def test_f26_whole_machine_boots_with_a_wrong_clock(
    host: WholeHost, under_load: UnderLoad, years: int
) -> None:
    ended = host.start(args=QUIET)["id"]
    host.end(ended)
    host.report(ended)
    with under_load():
        kept = host.start(args=QUIET, restart=True, ttl="1h")["id"]
        # systemd sets no clock back behind this file, nor behind its own age.
        host.system.run("rm", "--force", "/var/lib/systemd/timesync/clock")
        host.system.run("sync")
        host.system.cut_power()
        host.system.power_on(datetime.now(UTC) + timedelta(days=365 * years))
        assert abs(int(host.system.run("date", "+%s")) - time.time()) > _FAR
        assert _clock(host) == "no"
        with TimeServer(host.system.network.host_address):
            host.system.run("systemctl", "restart", "systemd-timesyncd")
            eventually(lambda: _clock(host) == "yes", "it has the time", patience=host.patience)
        since_boot = float(host.system.run("cat", "/proc/uptime").split()[0])
        assert since_boot < HELD_SECONDS, "too slow to tell: any clock counts by now"
        host.until_ready()
        host.until(kept, "running")
        host.report(ended)
        host.client.get("/logs", id=ended).expect(200)


def _clock(host: WholeHost) -> str:
    shown = host.system.run("timedatectl", "show", "--property=NTPSynchronized", "--value")
    return shown.strip()


_FILL = """\
fallocate --length "$(($(stat --file-system --format='%f*%S' /) - 2**25))" /var/full
! dd if=/dev/zero of=/var/rest bs=4096 status=none
"""


def test_f35_full_disk_of_whole_machine(host: WholeHost, under_load: UnderLoad) -> None:
    with under_load() as load:
        try:
            host.system.run("bash", "-euc", _FILL)
            load.is_refused()
        finally:
            host.system.run("rm", "--force", "/var/full", "/var/rest")


def test_f54_memory_exhausted_within_a_session(host: WholeHost, under_load: UnderLoad) -> None:
    small = {"cpu": 1, "ram": 24}
    host.make_game("small", registry="own", limits=small, reservation=small)
    with under_load():
        # It lives for a while: the cause of short runs may stay unknown.
        much = ["--write-file", "/dev/null", str(10**11)]
        much += ["--write-file", "/dev/shm/much", str(60 * _MEBIBYTE)]
        for _ in range(OOM_TRIES):
            report = host.report(host.start(image="small", args=much)["id"])
            assert report["exitCode"] == 137
            assert report["signal"] == 9
            if report["oomKilled"]:
                break
        assert report["end_reason"] == "oom"
        assert report["oomKilled"] is True


_HOG = "held = []\nwhile True: held.append(b'x' * 2**24)"


def test_f54_memory_exhausted_on_the_host(host: WholeHost, under_load: UnderLoad) -> None:
    def is_killed() -> bool:
        return host.system.unit("hog", "Result")["Result"] == "oom-kill"

    with under_load():
        programs = [host.pid(unit) for unit in UNITS]
        host.system.run("systemd-run", "--quiet", "--unit=hog", "python3", "-c", _HOG)
        eventually(is_killed, "the kernel ends what has taken all", patience=host.patience)
        host.system.run("systemctl", "reset-failed", "hog")
    assert [host.pid(unit) for unit in UNITS] == programs


def test_f07_restart_of_engine_with_live_restore(host: WholeHost, under_load: UnderLoad) -> None:
    with under_load():
        made = host.start(args=QUIET)
        _restart_engine(host)
        play_round(made)
        host.until_ready()
        assert host.status(made["id"]) == "running"


def test_f08_restart_of_engine_without_live_restore(
    host: WholeHost, under_load: UnderLoad
) -> None:
    with under_load():
        with without_live_restore(host):
            host.until_ready()
            ends = host.start(args=QUIET)["id"]
            # A game that exits with 0 when the engine stops it is not restarted.
            again = host.start(args=[*QUIET, "--ignore-sigterm"], restart=True)["id"]
            _restart_engine(host)
            assert host.report(ends)["end_reason"] == "exited"
        host.until(again, "running")


@contextmanager
def without_live_restore(host: WholeHost) -> Iterator[None]:
    path = "/etc/docker/daemon.json"
    before = host.system.run("cat", path)
    try:
        _configure_engine(host, path, json.dumps(json.loads(before) | {"live-restore": False}))
        yield
    finally:
        _configure_engine(host, path, before)


def _configure_engine(host: WholeHost, path: str, text: str) -> None:
    host.system.write(path, text)
    _restart_engine(host)


def _restart_engine(host: WholeHost) -> None:
    host.system.run("systemctl", "reset-failed", "docker")  # This many restarts are not a failure
    host.system.run("systemctl", "restart", "docker")
