"""Both programs under systemd on a host, from installation to removal.

All tests share one system and depend on their order: the last ones dismantle it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.demo import play
from tests.docker.stack import eventually
from tests.support.deployment import Steps
from tests.systemd.installed import (
    AGENT,
    CONTROL_PLANE,
    UNITS,
    Installed,
    installed,
    make,
    upgraded_sources,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first one creates the system's root
]

MODES = {
    "/etc/tiltyard": "755 root root",
    "/etc/tiltyard/agent.toml": f"640 root {AGENT}",
    "/etc/tiltyard/controlplane.toml": f"640 root {CONTROL_PLANE}",
    f"/var/lib/{AGENT}": f"700 {AGENT} {AGENT}",
    f"/var/lib/{AGENT}/identity.pem": f"600 {AGENT} {AGENT}",
    f"/var/lib/{CONTROL_PLANE}": f"700 {CONTROL_PLANE} {CONTROL_PLANE}",
    f"/var/lib/{CONTROL_PLANE}/authority.pem": f"600 {CONTROL_PLANE} {CONTROL_PLANE}",
    "/run/tiltyard": f"750 {AGENT} {AGENT}",
    "/run/tiltyard/agent.sock": f"660 {AGENT} {AGENT}",
    "/opt/tiltyard": "755 root root",
}


@pytest.fixture(scope="module")
def host() -> Iterator[Installed]:
    with installed() as made:
        yield made


@contextmanager
def changed_settings(host: Installed, unit: str, line: str) -> Iterator[None]:
    """Prepend a line to the settings of a program within the context."""
    path = f"/etc/tiltyard/{program_of(unit)}.toml"
    text = host.system.run("cat", path)
    host.system.write(path, f"{line}\n{text}")
    try:
        yield
    finally:
        host.system.write(path, text)


def program_of(unit: str) -> str:
    return unit.removeprefix("tiltyard-")


def left_of_programs(host: Installed) -> str:
    """Find files of the programs, except data."""
    folders = ("/opt", "/usr/local", "/etc/systemd", "/run")
    return host.system.run("find", *folders, "-xdev", "-name", "*tiltyard*")


def test_units_are_enabled_and_run_as_their_users(host: Installed) -> None:
    for unit in UNITS:
        shown = host.system.unit(unit, "Type", "UnitFileState", "NRestarts", "User")
        assert shown == {
            "Type": "notify",
            "UnitFileState": "enabled",
            "NRestarts": "0",
            "User": unit,
        }
        assert host.system.run("ps", "-o", "user:32=", "-p", str(host.pid(unit))).strip() == unit


def test_file_owners_match_documentation(host: Installed) -> None:
    shown = host.system.run("stat", "--format=%n %a %U %G", *MODES)
    assert dict(line.split(" ", 1) for line in shown.splitlines()) == MODES
    assert "docker" in host.system.run("id", "-nG", AGENT).split()
    assert host.system.run("id", "-nG", CONTROL_PLANE).split() == [CONTROL_PLANE]
    folders = [f"/var/lib/{unit}" for unit in UNITS]
    closed = ["-not", "-path", "*/public/*", "-not", "-path", "*/init/*"]
    open_files = ["-type", "f", "-perm", "/077", *closed]
    assert host.system.run("find", *folders, *open_files) == ""
    programs = host.system.run("find", f"/var/lib/{AGENT}/init", "-type", "f", "-perm", "0755")
    assert len(programs.splitlines()) == 1


def test_doctor_finds_no_failures(host: Installed) -> None:
    assert "0 FAIL" in host.system.run(AGENT, "doctor")


def test_plays_a_whole_session(host: Installed) -> None:
    play(host.client, Steps(print))


def test_game_reads_its_session_file(host: Installed) -> None:
    made = host.play("sent")
    [game] = host.games()
    host.system.run("kill", "-USR1", game.split()[0])

    def has_read() -> bool:
        log = host.client.get("/logs", id=made["id"]).expect(200).body.decode()
        return re.search(r'SIGUSR1: \{.*"sent"', log) is not None

    eventually(has_read, "it has read session.json as another user than the agent's")
    host.end(made["id"])


def test_agent_has_its_capabilities(host: Installed) -> None:
    host.play("left-alone")
    host.end("left-alone")
    status = host.system.run(AGENT, "status")  # shows missing permissions as warnings
    assert "serving" in status
    assert "cannot" not in status
    made = host.play("past-the-engine")
    engine = str(host.pid("docker"))
    host.system.run("kill", "-STOP", engine)
    try:
        host.end(made["id"])
        eventually(lambda: host.games() == [], "the game has ended")
    finally:
        host.system.run("kill", "-CONT", engine)
    eventually(lambda: host.status(made["id"]) == "exited", "its end is reported")
    host.until_ready()  # the engine may have been considered unavailable


ASK_AND_SET = """
import time
from tiltyard.runtime.kernel_clock import kernel_is_synchronised
kernel_is_synchronised()
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
except PermissionError:
    print("asked, not set")
"""


@pytest.mark.parametrize("unit", UNITS)
def test_programs_can_read_but_not_set_the_clock(host: Installed, unit: str) -> None:
    shown = host.system.run("systemctl", "cat", unit)
    bounds = (
        r"^((?:Ambient|Capability|NoNew|Protect|Private|Restrict|SystemCall|Lock|Memory)\w+=.*)$"
    )
    properties = [f"--property={each}" for each in re.findall(bounds, shown, re.MULTILINE)]
    run = ("systemd-run", "--quiet", "--wait", "--pipe", f"--uid={unit}", *properties)
    python = f"/opt/tiltyard/{program_of(unit)}/bin/python"
    output = host.system.run(*run, python, "-c", ASK_AND_SET)
    assert output == "asked, not set\n"


def test_an_upgrade_of_the_agent_disturbs_no_session(host: Installed) -> None:
    before = host.pid(AGENT)
    plane = host.pid(CONTROL_PLANE)
    version = upgraded_sources(host.system)
    with host.undisturbed("upgraded") as player:
        make(host.system, "install-agent")
        assert host.pid(AGENT) not in {0, before}
        assert f"version {version}" in host.system.run(AGENT, "status")
    assert player.lost == []
    assert host.pid(CONTROL_PLANE) == plane


def test_an_upgrade_of_the_control_plane_disturbs_no_session(host: Installed) -> None:
    before = host.pid(CONTROL_PLANE)
    agent = host.pid(AGENT)
    with host.undisturbed("upgraded-too") as player:
        make(host.system, "install-controlplane")
        assert host.pid(CONTROL_PLANE) not in {0, before}
    assert player.lost == []
    assert host.pid(AGENT) == agent


def test_reinstall_changes_nothing(host: Installed) -> None:
    pids = [host.pid(unit) for unit in UNITS]
    for target in ("install-agent", "install-controlplane"):
        assert "nothing has changed" in make(host.system, target)
    assert [host.pid(unit) for unit in UNITS] == pids


def test_the_watchdog_restarts_an_agent_that_hangs(host: Installed) -> None:
    before = host.pid(AGENT)
    restarts = int(host.system.unit(AGENT, "NRestarts")["NRestarts"])
    with host.undisturbed("watched") as player:
        host.system.run("kill", "-STOP", str(before))

        def again() -> bool:
            now = host.system.unit(AGENT, "SubState", "NRestarts")
            return now == {"SubState": "running", "NRestarts": str(restarts + 1)}

        eventually(again, "the watchdog has started it again", patience=60)
        assert host.pid(AGENT) != before
    assert player.lost == []
    assert any("Watchdog timeout" in line for line in host.system.journal(f"--unit={AGENT}"))


def test_restart_of_engine_disturbs_no_session(host: Installed) -> None:
    engine = host.pid("docker")
    agent = host.pid(AGENT)
    with host.undisturbed("restored") as player:
        host.system.run("systemctl", "restart", "docker")
        assert host.pid("docker") != engine
    assert player.lost == []
    assert host.pid(AGENT) == agent


def test_neither_program_logged_errors(host: Installed) -> None:
    for unit in UNITS:
        own = (f"_SYSTEMD_UNIT={unit}.service", "--output=cat")
        assert host.system.journal(*own, "--priority=info")
        assert host.system.journal(*own, "--priority=err") == []
        assert not [line for line in host.system.journal(*own) if "Traceback" in line]


@pytest.mark.parametrize("unit", UNITS)
def test_does_not_start_with_invalid_settings(host: Installed, unit: str) -> None:
    with changed_settings(host, unit, "unknown_key = 1"):
        assert host.system.attempt("systemctl", "restart", unit).returncode != 0
        shown = host.system.unit(unit, "ActiveState", "ExecMainStatus", "NRestarts")
        assert shown == {"ActiveState": "failed", "ExecMainStatus": "78", "NRestarts": "0"}
    host.system.run("systemctl", "start", unit)
    host.until_ready()


def test_does_not_remove_agent_with_sessions(host: Installed) -> None:
    made = host.play("in-the-way")
    with pytest.raises(AssertionError, match="sessions run here"):
        make(host.system, "uninstall-agent")
    host.end(made["id"])


def test_remove_keeps_data_for_reinstall(host: Installed) -> None:
    agent_id = host.system.run("cat", f"/var/lib/{AGENT}/agent_id")
    for unit in UNITS:
        make(host.system, f"uninstall-{program_of(unit)}")
    assert not left_of_programs(host)
    for unit in UNITS:
        make(host.system, f"install-{program_of(unit)}")
    host.system.run("systemctl", "start", *UNITS)
    host.until_ready()
    assert host.system.run("cat", f"/var/lib/{AGENT}/agent_id") == agent_id
    assert host.status("in-the-way") == "exited"
    made = host.play("once-more")
    host.end(made["id"])


def test_purge_leaves_nothing(host: Installed) -> None:
    for unit in UNITS:
        make(host.system, f"uninstall-{program_of(unit)}", "PURGE=1")
    assert not left_of_programs(host)
    data = ("/etc/tiltyard", *(f"/var/lib/{unit}" for unit in UNITS))
    for path in data:
        assert host.system.attempt("test", "-e", path).returncode != 0, path
    for unit in UNITS:
        assert host.system.attempt("id", unit).returncode != 0
