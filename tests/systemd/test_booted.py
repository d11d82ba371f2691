"""systemd boots as process 1 of an isolated system, and leaves nothing."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.stack import eventually
from tests.support.private_engine import cgroups
from tests.systemd.booted import Booted
from tests.systemd.system import CommandFailedError

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def system() -> Iterator[Booted]:
    with Booted() as booted:
        yield booted


def test_systemd_is_process_1_of_isolated_system(system: Booted) -> None:
    assert system.run("cat", "/proc/1/comm") == "systemd\n"
    assert system.run("systemctl", "is-active", "docker.service", "containerd.service")
    assert system.run("hostname") != os.uname().nodename
    assert system.network.address in system.run("ip", "-brief", "address", "show", "eth0")


def test_system_cannot_change_kernel_settings_of_machine(system: Booted) -> None:
    setting = "/proc/sys/kernel/pid_max"
    with pytest.raises(CommandFailedError, match="Read-only file system"):
        system.run("sh", "-c", "echo $(cat $0) >$0", setting)  # writes the current value
    system.run("sysctl", "--write", "net.ipv4.ip_local_port_range=40000 50000")
    assert "40000" not in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()


def test_failed_system_leaves_nothing() -> None:
    with pytest.raises(CommandFailedError, match="false: 1"), Booted() as system:
        network = system.network.name
        folder = system.folder
        sleeper = subprocess.Popen(system.inside("setsid", "sleep", "infinity"))
        eventually(lambda: bool(system.attempt("pgrep", "-x", "sleep").stdout), "it sleeps inside")
        system.run("false")
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not folder.exists()
    assert not Path(f"/run/netns/{network}").exists()
    assert cgroups(network) == []
