#!/usr/bin/env python3
"""Follow the sessions of an account: print where players connect, and which sessions end.

Needs only the standard library:

    export TILTYARD_URL=http://127.0.0.1:8080 TILTYARD_TOKEN=ty_…
    ./follow_events.py position.txt

The file has the id of the last event that was handled. A program that is started again goes on
after it, so that it handles each event at least once, and none is left out.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

QUIET = 40.0
"""Seconds without a line after which a stream is dead: quiet ones send their position."""

PAUSE = 2.0
"""Seconds before the program connects again."""


def follow(url: str, token: str, after: str) -> Iterator[dict[str, Any]]:
    """Yield the events after an id, and what the stream says of itself, until it ends.

    Raises:
        HTTPError: The API refuses the request; 410 if events after the id are gone.
        OSError, HTTPException: The connection broke.
    """
    query = urlencode({"kind": "session.*"} | ({"after": after} if after else {}))
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/x-ndjson"}
    with urlopen(Request(f"{url}/event?{query}", headers=headers), timeout=QUIET) as lines:
        for line in lines:
            yield json.loads(line)


def handle(event: dict[str, Any]) -> None:
    """Print what a matchmaker wants to know."""
    data = event["data"]
    if event["type"] == "session.ready":
        ports = ", ".join(f"{port} for {name}" for name, port in data["ports"].items())
        print(f"{event['object']} is ready on {data['host']}, ports {ports}", flush=True)
    elif event["type"] == "session.ended":
        print(f"{event['object']} has ended: {data['reason']}", flush=True)


def store(position: Path, after: str) -> None:
    """Replace the file in one step: a program that is killed leaves the old or the new id."""
    new = position.with_suffix(".new")
    new.write_text(after)
    new.replace(position)


def main(position: Path) -> None:
    """Follow until interrupted."""
    url = os.environ["TILTYARD_URL"]
    token = os.environ["TILTYARD_TOKEN"]
    after = position.read_text() if position.exists() else ""
    while True:
        try:
            for event in follow(url, token, after):
                if event["type"] == "stream.gap":
                    print("events are missing: read all sessions again", file=sys.stderr)
                if not event["type"].startswith("stream."):
                    handle(event)
                after = event["id"]
                store(position, after)
        except HTTPError as error:
            if error.code == 410:
                print("events are missing: read all sessions again", file=sys.stderr)
                after = json.load(error)["resume"]
            elif error.code not in {429, 500, 502, 503, 504}:
                raise
        except (OSError, HTTPException) as error:
            print(f"cannot follow: {error}", file=sys.stderr)
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
