#!/usr/bin/env python3
"""Play a match: start a session, print its address, and stop it.

Needs only the standard library:

    export TILTYARD_URL=http://127.0.0.1:8080 TILTYARD_TOKEN=ty_…
    ./matchmaker.py my-game local ann bo

The session has the id of the match, which makes the start idempotent: repeating it after a lost
response never starts a second session.
"""

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

READY_WITHIN = 30
"""Seconds that players wait for a game to load."""

ANSWERED_WITHIN = READY_WITHIN + 15
"""Client timeout: stopping a session that is not ready in time takes up to 12 s more."""

TRY_FOR = 60.0
"""Seconds for which a rejected or unanswered start is retried."""

PAUSE = 1.0
"""Seconds between retries without `Retry-After`."""

STOPS = 3
"""Attempts to stop a session; after that its `ttl` ends it."""

UNKNOWN = 0
"""Status when there was no response, so the outcome is unknown."""


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    body: bytes = b""
    retry_after: float | None = None

    @property
    def may_change(self) -> bool:
        """Whether a retry can succeed.

        Not after 420 without Retry-After (the image cannot run) or 504 (not ready, stopped).
        """
        if self.status == 420:
            return self.retry_after is not None
        return self.status in {UNKNOWN, 500, 502, 503}

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Address:
    """The public address of a session."""

    host: str
    ports: dict[str, int]
    """Host port by container port: `{"7777/udp": 20000}`."""


class RefusedError(Exception):
    """An unexpected response."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.body.decode(errors='replace') or 'no answer'}")


class Tiltyard:
    """API client for one token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def start(self, match: str, image: str, location: str) -> Address:
        """Start the session of a match and return its address once players can reach it.

        Raises RefusedError if it cannot be started or was not ready in time.
        """
        body = {"id": match, "image": image, "location": location, "ttl": "2h"}
        ready = {"Prefer": f"wait=ready; wait={READY_WITHIN}"}
        give_up = time.monotonic() + TRY_FOR
        while True:
            answer = self._call("POST", "/session", body, headers=ready, timeout=ANSWERED_WITHIN)
            if answer.status == 201:
                made = answer.json()
                ports = {f"{p['container']}/{p['type']}": int(p["host"]) for p in made["ports"]}
                return Address(made["host"], ports)
            if answer.status == 409:  # an earlier attempt succeeded and its response was lost
                started = self._started(match, answer)
                if started is not None:
                    return started
            elif not answer.may_change:
                raise RefusedError(answer)
            pause = answer.retry_after or PAUSE
            if time.monotonic() + pause > give_up:
                raise RefusedError(answer)
            time.sleep(pause)

    def _started(self, match: str, taken: Answer) -> Address | None:
        """Return the address of a session that exists; None while its start is in progress."""
        answer = self._call("GET", _path(match))
        if answer.status != 200:
            return None  # 404: that start has failed, so the id is free again
        session = answer.json()
        if session["status"] in {"running", "restarting", "draining"}:
            return Address(session["host"], session["port"])
        if session["status"] != "created":
            raise RefusedError(taken)  # it has ended: a new match needs a new id
        return None

    def join(self, match: str, players: list[str]) -> int:
        """Add players (idempotent) and return how many have joined."""
        body = {"session": match, "players": players}
        return int(self._expect(200, "PUT", "/session/player/join", body).json()["count"])

    def stop(self, match: str) -> None:
        """Stop a match; an unreachable host (503) stops it once it is back."""
        for _ in range(STOPS):
            answer = self._call("DELETE", _path(match))
            if answer.status in {204, 404, 409, 503}:
                return
            time.sleep(PAUSE)
        raise RefusedError(answer)

    def log(self, match: str) -> str:
        """Return the log of the game."""
        query = urlencode({"id": match})
        return self._expect(200, "GET", f"/logs?{query}").body.decode(errors="replace")

    def _expect(self, status: int, method: str, path: str, body: object = None) -> Answer:
        answer = self._call(method, path, body)
        if answer.status != status:
            raise RefusedError(answer)
        return answer

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 20.0,
    ) -> Answer:
        request = Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", **(headers or {})},
            method=method,
        )
        try:
            with urlopen(request, timeout=timeout) as response:
                return Answer(response.status, response.read())
        except HTTPError as error:
            with error:
                wait = error.headers["Retry-After"]
                return Answer(error.code, error.read(), float(wait) if wait else None)
        except (OSError, HTTPException):  # connection refused, reset or timed out
            return Answer(UNKNOWN)


def _path(match: str) -> str:
    return f"/session/{quote(match, safe='')}"


def main() -> int:
    """Play one match until Enter is pressed."""
    parser = argparse.ArgumentParser(description="Play a match in a session of its own.")
    parser.add_argument("image", help="name of the application")
    parser.add_argument("location", help="region to play in")
    parser.add_argument("players", nargs="+", help="ids of players")
    wanted = parser.parse_args()
    try:
        tiltyard = Tiltyard(os.environ["TILTYARD_URL"], os.environ["TILTYARD_TOKEN"])
    except KeyError as error:
        sys.exit(f"set {error.args[0]}")
    match = f"match-{uuid.uuid4()}"
    try:
        address = tiltyard.start(match, wanted.image, wanted.location)
        joined = tiltyard.join(match, wanted.players)
    except RefusedError as error:
        tiltyard.stop(match)  # in case it was started
        sys.exit(f"no match: {error}")
    ports = ", ".join(f"{port} for {name}" for name, port in address.ports.items())
    print(f"{match} with {joined} players is on {address.host}, ports {ports}", flush=True)
    try:
        input("Press Enter to stop it. ")
    finally:
        tiltyard.stop(match)
    print(tiltyard.log(match), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
