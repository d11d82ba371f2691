"""Readers of events, whose control plane is killed while others write."""

import http.client
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.plugin import Rounds
from tests.support.api_client import ApiClient
from tests.support.controlplane.system import APPLICATION
from tests.support.harness import ROOT, ControlPlaneProcess

READ_TIMEOUT = 30.0  # Seconds; a quiet stream says where it is every 15 s
WRITERS = 3
REGISTRIES = {"local": "127.0.0.1:9"}  # Nothing is pulled
LAST = "the-last"
"""The application whose creation is the last event that readers wait for."""

Connect = Callable[[], ApiClient]
Broken = (OSError, http.client.HTTPException)


class Writer:
    """Creates applications of an account, one after another, until it is stopped."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._name = name
        self.answered: list[str] = []
        self.unanswered: list[str] = []
        self.progress = threading.Condition()

    def run(self, stopped: threading.Event) -> None:
        """Write until stopped; a request without an answer is not repeated."""
        for number in itertools.count():
            if stopped.is_set():
                return
            application = f"{self._name}-{number}"
            try:
                create(self._connect(), application)
            except Broken:
                self.unanswered.append(application)
                stopped.wait(0.02)  # it is down: its restart is what the main thread waits for
                continue
            with self.progress:
                self.answered.append(application)
                self.progress.notify_all()

    def wait_for(self, further: int) -> None:
        """Wait until a number of further applications was created."""
        with self.progress:
            goal = len(self.answered) + further
            assert self.progress.wait_for(lambda: len(self.answered) >= goal, timeout=60)


class Reader:
    """Follows the log from a position; connects again, where it was, whenever its stream ends."""

    def __init__(self, connect: Connect, path: str, form: str, after: str) -> None:
        self._connect = connect
        self._path = path
        self._form = form
        self._after = after
        self.streams = 0
        self.events: list[dict[str, Any]] = []

    def run(self) -> None:
        """Read until the last event."""
        while not (self.events and self.events[-1]["object"] == LAST):
            try:
                self._read()
            except Broken:
                threading.Event().wait(0.02)

    def _read(self) -> None:
        headers = {"Accept": self._form, "Last-Event-ID": self._after}
        query = {"after": self._after} if self._form != "text/event-stream" else {}
        client = self._connect()
        with client.stream(self._path, timeout=READ_TIMEOUT, headers=headers, **query) as stream:
            self.streams += 1
            for event in self._parsed(stream):
                assert event["type"] != "stream.gap", event
                self._after = event["id"]
                if not event["type"].startswith("stream."):
                    self.events.append(event)
                    if event["object"] == LAST:
                        return

    def _parsed(self, stream: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        """Yield complete events only: what a kill has cut off is not one."""
        for line in stream:
            text = line.decode()
            if not text.endswith("\n"):
                return
            if self._form == "text/event-stream":
                if not text.startswith("data: "):
                    continue
                text = text.removeprefix("data: ")
            yield json.loads(text)


def create(client: ApiClient, application: str) -> None:
    """Create an application."""
    client.post("/application", APPLICATION | {"name": application}).expect(201)


def position(client: ApiClient, path: str) -> str:
    """Return the id after the newest event."""
    page = client.get(path, limit="1000").expect(200).json()
    assert not page["more"]
    return str(page["after"])


def pages(client: ApiClient, path: str, after: str) -> list[dict[str, Any]]:
    """Read all events after an id, in pages."""
    found: list[dict[str, Any]] = []
    more = True
    while more:
        page = client.get(path, after=after, limit="100").expect(200).json()
        found += page["events"]
        after = page["after"]
        more = page["more"]
    return found


@pytest.mark.part_alone
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_f36_readers_of_a_killed_control_plane_get_each_event_once_and_in_order(
    rounds: Rounds, chance: Random
) -> None:
    with ControlPlaneProcess([], REGISTRIES) as control_plane, ThreadPoolExecutor() as threads:
        own = control_plane.client

        def operator() -> ApiClient:
            return control_plane.operator

        begins = {
            "/event": position(own(), "/event"),
            "/operator/event": position(operator(), "/operator/event"),
        }
        readers = [
            Reader(own, "/event", "text/event-stream", begins["/event"]),
            Reader(own, "/event", "application/x-ndjson", begins["/event"]),
            Reader(operator, "/operator/event", "text/event-stream", begins["/operator/event"]),
        ]
        writers = [Writer(own, f"game-{number}") for number in range(WRITERS)]
        stopped = threading.Event()
        reading = [threads.submit(reader.run) for reader in readers]
        writing = [threads.submit(writer.run, stopped) for writer in writers]
        for _ in range(rounds(3, 50)):
            chance.choice(writers).wait_for(chance.randint(1, 20))
            control_plane.kill()
            control_plane.start()
        stopped.set()
        _all_done(writing)
        create(own(), LAST)
        _all_done(reading)

        for reader in readers:
            assert reader.streams > 1
        [sse, ndjson, operators] = (reader.events for reader in readers)
        stored = pages(own(), "/event", begins["/event"])
        assert sse == stored
        assert ndjson == stored
        everything = pages(operator(), "/operator/event", begins["/operator/event"])
        assert operators == everything
        numbers = [int(event["id"].partition("-")[2]) for event in everything]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        created = [e["object"] for e in stored if e["type"] == "application.created"]
        answered = {name for writer in writers for name in writer.answered}
        unanswered = {name for writer in writers for name in writer.unanswered}
        assert len(created) == len(set(created))
        assert answered <= set(created) <= answered | unanswered | {LAST}


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


def _all_done(tasks: list["Future[None]"]) -> None:
    for task in tasks:
        task.result(timeout=120)
