"""Random calls of two accounts, and whether their answers agree with what runs."""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from tests.support.api_client import ApiClient
from tests.support.deployment import APPLICATION
from tests.support.harness import ControlPlaneProcess

CALLERS = 8
SHORT_LIVES = 0.1  # Share of starts with a lifetime
REPEATS = 0.3  # Share of starts with an id that was requested before


@dataclass
class Known:
    """A session as its callers know it."""

    may_end: bool  # It has a lifetime, a stop was requested, or its start was refused
    started: bool = False
    stopped: bool = False


@dataclass
class Side:
    """An account with an application in one region, and the sessions of a round by id."""

    account: str
    region: str
    most: int  # Live sessions, which is the account's quota
    standbys: int
    sessions: dict[str, Known] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        return f"/warm-pool/{APPLICATION}/{self.region}"


class RandomCalls:
    """Callers of all sides, what they were answered, and which answers were `wrong`."""

    def __init__(
        self, control_plane: ControlPlaneProcess, sides: Sequence[Side], chance: Random
    ) -> None:
        self.sides = sides
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._control_plane = control_plane
        self._chance = chance
        self._number = 0
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Forget all sessions, after they have ended."""
        for side in self.sides:
            side.sessions.clear()
            self._control_plane.made[side.account].clear()

    @contextmanager
    def under_way(self) -> Iterator[Callable[[Side, str], None]]:
        """Give what submits a call; at most two for each caller wait or are under way."""
        slots = threading.Semaphore(2 * CALLERS)
        calls = list[Future[None]]()
        with ThreadPoolExecutor(CALLERS) as callers:

            def submit(side: Side, operation: str) -> None:
                slots.acquire()
                calls.append(callers.submit(self._call, side, *self._chosen(side, operation)))
                calls[-1].add_done_callback(lambda _: slots.release())

            yield submit
        for call in calls:
            call.result()

    def _chosen(self, side: Side, operation: str) -> tuple[str, str, dict[str, str]]:
        """The request for an operation on a random session."""
        known = [each for each, session in side.sessions.items() if not session.may_end]
        again = [each for each in known if not side.sessions[each].started]
        if operation == "start" and again and self._chance.random() < REPEATS:
            return "start", self._chance.choice(again), {}
        if operation in {"begin", "start"} or not known:
            self._number += 1
            session_id = f"match-{self._number}"
            lives_short = self._chance.random() < SHORT_LIVES
            side.sessions[session_id] = Known(may_end=lives_short)
            return "start", session_id, {"ttl": "0h1m"} if lives_short else {}
        session_id = self._chance.choice(known)
        if operation == "stop":
            side.sessions[session_id].may_end = True
        return operation, session_id, {}

    def _call(self, side: Side, operation: str, session_id: str, more: dict[str, str]) -> None:
        """Send a request and note its outcome, which is unknown without a response."""
        start = {"location": side.region, "image": APPLICATION, "id": session_id, **more}
        method, path, body = {
            "start": ("POST", "/session", start),
            "stop": ("DELETE", f"/session/{session_id}", None),
            "read": ("GET", f"/session/{session_id}", None),
        }[operation]
        session = side.sessions[session_id]
        had_started = session.started
        try:
            status = self.client(side).request(method, path, body=body).status
        except (OSError, http.client.HTTPException):
            status = 0
        outcome = "refused"
        if status == 0 or status >= 500:
            outcome = "unknown"
        elif status < 300:
            outcome = "ok"
        with self._lock:
            self.answers[f"{operation} {outcome}"] += 1
            has_started = operation == "start" and outcome == "ok"
            twice = has_started and session.started and not session.may_end
            lost = operation == "read" and status == 404 and had_started
            session.started |= has_started
            session.may_end |= operation == "start" and status in {402, 420}
            session.stopped |= operation == "stop" and outcome == "ok"
            if twice or lost or status in {400, 401, 403, 422, 500}:
                self.wrong.append(f"{operation} of {session_id}, {session}: {status}")

    def mistakes(self) -> list[str]:
        """Sessions that run or do not run, other than callers were answered."""
        found = []
        for side in self.sides:
            live = self.live(side)
            kept = {
                session_id
                for session_id, known in side.sessions.items()
                if known.started and not known.may_end
            }
            gone = {session_id for session_id, known in side.sessions.items() if known.stopped}
            found += [f"lost: {each}" for each in kept - live]
            found += [f"not stopped: {each}" for each in live & gone]
        return found

    def live(self, side: Side) -> set[str]:
        """The ids of the sessions that live, as its account sees them."""
        return {each["id"] for each in self.client(side).sessions()}

    def client(self, side: Side) -> ApiClient:
        """A client of its account."""
        return self._control_plane.client(side.account)
