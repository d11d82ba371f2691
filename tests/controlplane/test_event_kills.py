"""Readers of events, whose control plane is killed while others write, or restored."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.controlplane.event_load import Load, pages, position
from tests.faults.plugin import Rounds
from tests.support.api_client import ApiClient
from tests.support.controlplane.system import APPLICATION
from tests.support.harness import ROOT, ControlPlaneProcess

REGISTRIES = {"local": "127.0.0.1:9"}  # Nothing is pulled


def create(client: ApiClient, application: str) -> None:
    """Create an application."""
    client.post("/application", APPLICATION | {"name": application}).expect(201)


@pytest.mark.part_alone
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_f36_readers_of_a_killed_control_plane_get_each_event_once_and_in_order(
    rounds: Rounds, chance: Random
) -> None:
    with ThreadPoolExecutor() as threads, ControlPlaneProcess([], REGISTRIES) as control_plane:
        with Load(control_plane, threads) as load:
            for _ in range(rounds(3, 50)):
                chance.choice(load.writers).wait_for(chance.randint(1, 20))
                control_plane.kill()
                control_plane.start()
            load.finish()
        for reader in load.readers:
            assert reader.streams > 1
        load.check()


@pytest.mark.slow
def test_readers_of_a_restored_control_plane_learn_that_what_they_read_may_be_gone(
    tmp_path: Path,
) -> None:
    with ControlPlaneProcess([], REGISTRIES) as control_plane:
        own = control_plane.client
        create(own(), "before")
        backup = tmp_path / "backup"
        command(control_plane, "backup", str(backup))
        read = position(own(), "/event")
        create(own(), "lost")
        later = position(own(), "/event")
        command(control_plane, "restore", "--force", str(backup), is_running=False)
        create(own(), "after")

        # The number of an event since then is used a second time.
        assert own().get("/event", after=later).status == 410
        gone = own().get("/event", after=read).expect(410).json()
        assert gone["code"] == "EVENTS_GONE"
        with own().stream(
            "/event", headers={"Accept": "text/event-stream", "Last-Event-ID": later}
        ) as stream:
            lines = [line.decode() for line in stream]
        [gap] = [line for line in lines if line.startswith("data: ")]
        assert json.loads(gap.removeprefix("data: "))["type"] == "stream.gap"
        assert f"id: {gone['resume']}\n" in lines
        left = pages(own(), "/event", gone["resume"])
        objects = [each["object"] for each in left if each["type"] == "application.created"]
        assert objects == ["before", "after"]
        [epoch] = {each["id"].partition("-")[0] for each in left}
        assert int(epoch) > int(read.partition("-")[0])


def command(
    control_plane: ControlPlaneProcess, name: str, *more: str, is_running: bool = True
) -> None:
    """Run a command of the control plane's program, which is stopped for it unless it may run."""
    if not is_running:
        control_plane.process.stop()
    called = [sys.executable, "-m", "controlplane", name, "--config", str(control_plane.config)]
    subprocess.run([*called, *more], check=True, cwd=ROOT, timeout=60, capture_output=True)
    if not is_running:
        control_plane.start()
