"""Writers and readers of events of a control plane, which may be killed while they run."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

from tests.support.api_client import ApiClient
from tests.support.harness import ControlPlaneProcess

READ_TIMEOUT = 30.0  # Seconds; a quiet stream says where it is every 15 s
WRITERS = 3
LAST = "the-last"
"""The name of the token whose creation is the last event that readers wait for."""

Connect = Callable[[], ApiClient]
Broken = (OSError, http.client.HTTPException)


class Writer:
    """Creates and revokes tokens of an account, one after another, until it is stopped.

    There can be any number of revoked tokens, but only 1000 applications. `pause` is the time in
    seconds between two tokens.
    """

    def __init__(self, connect: Connect, operator: Connect, name: str, pause: float) -> None:
        self._connect = connect
        self._operator = operator
        self._name = name
        self._pause = pause
        self.answered: list[str] = []
        self.unanswered: list[str] = []
        self.seconds: list[float] = []
        """The duration of each answered creation."""
        self.progress = threading.Condition()

    def run(self, stopped: threading.Event) -> None:
        """Write until stopped; a request without an answer is not repeated."""
        for number in itertools.count():
            if stopped.is_set():
                return
            name = f"{self._name}-{number}"
            begin = time.perf_counter()
            try:
                token_id = create(self._connect(), name)
            except Broken:
                self.unanswered.append(name)
                stopped.wait(0.02)  # it is down: its restart is what the main thread waits for
                continue
            with self.progress:
                self.answered.append(name)
                self.seconds.append(time.perf_counter() - begin)
                self.progress.notify_all()
            with suppress(*Broken):
                self._operator().request("DELETE", f"/operator/token/{token_id}").expect(200)
            stopped.wait(self._pause)

    def wait_for(self, further: int) -> None:
        """Wait until a number of further tokens was created."""
        self.wait_until(len(self.answered) + further)

    def wait_until(self, count: int) -> None:
        """Wait until a number of tokens was created in all."""
        with self.progress:
            assert self.progress.wait_for(lambda: len(self.answered) >= count, timeout=600)


class Reader:
    """Follows the log from a position; connects again, where it was, whenever its stream ends."""

    def __init__(self, connect: Connect, path: str, form: str, after: str) -> None:
        self._connect = connect
        self._path = path
        self._form = form
        self._after = after
        self.streams = 0
        self.events: list[dict[str, Any]] = []

    def run(self, abandoned: threading.Event) -> None:
        """Read until the last event, or until the test has failed."""
        while not (abandoned.is_set() or (self.events and is_last(self.events[-1]))):
            try:
                self._read()
            except Broken:
                abandoned.wait(0.02)

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
                    if is_last(event):
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


class Load:
    """Writers, and readers of each form, that run in threads during a block.

    Enter the control plane after the threads: its end also ends the streams of a test that fails.
    """

    def __init__(
        self, control_plane: ControlPlaneProcess, threads: ThreadPoolExecutor, pause: float = 0.0
    ) -> None:
        self._threads = threads
        self._own = own = control_plane.client

        def operator() -> ApiClient:
            return control_plane.operator

        self._operator: Connect = operator
        self._begin = position(own(), "/event")
        self._operator_begin = position(operator(), "/operator/event")
        self.readers = [
            Reader(own, "/event", "text/event-stream", self._begin),
            Reader(own, "/event", "application/x-ndjson", self._begin),
            Reader(operator, "/operator/event", "text/event-stream", self._operator_begin),
        ]
        self.writers = [
            Writer(own, operator, f"token-{number}", pause) for number in range(WRITERS)
        ]
        self._stopped = threading.Event()
        self._abandoned = threading.Event()

    def __enter__(self) -> Self:
        submit = self._threads.submit
        self._reading = [submit(reader.run, self._abandoned) for reader in self.readers]
        self._writing = [submit(writer.run, self._stopped) for writer in self.writers]
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._stop_writing()

    def finish(self) -> None:
        """Stop the writers, and wait until all readers have read the last event."""
        self._stop_writing()
        create(self._own(), LAST)
        for reading in self._reading:
            reading.result(timeout=120)

    def _stop_writing(self) -> None:
        """Stop the writers; raise the error of one that has failed."""
        self._stopped.set()
        for writing in self._writing:
            writing.result(timeout=120)

    def check(self) -> None:
        """Check that no event is missing, double or out of order."""
        [sse, ndjson, operators] = (reader.events for reader in self.readers)
        stored = pages(self._own(), "/event", self._begin)
        assert sse == stored
        assert ndjson == stored
        everything = pages(self._operator(), "/operator/event", self._operator_begin)
        assert operators == everything
        numbers = [int(event["id"].partition("-")[2]) for event in everything]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        created = [e["data"]["name"] for e in stored if e["type"] == "token.created"]
        answered = {name for writer in self.writers for name in writer.answered}
        unanswered = {name for writer in self.writers for name in writer.unanswered}
        assert len(created) == len(set(created))
        assert answered <= set(created) <= answered | unanswered | {LAST}


def is_last(event: dict[str, Any]) -> bool:
    """Return whether it is the event that readers wait for."""
    return bool(event["type"] == "token.created" and event["data"]["name"] == LAST)


def create(client: ApiClient, name: str) -> str:
    """Create a token; return its id."""
    made = client.post("/token", {"name": name, "scopes": ["session:read"]}).expect(201).json()
    return str(made["token"].split("_")[1])


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
        page = client.get(path, after=after, limit="1000").expect(200).json()
        found += page["events"]
        after = page["after"]
        more = page["more"]
    return found
