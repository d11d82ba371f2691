#!/usr/bin/env python3
"""Receive the events of a webhook, and verify that they are from Tiltyard.

Needs only the standard library:

    export WEBHOOK_SECRET=whsec_…
    ./webhook_receiver.py 8000

The signature proves that the sender knows the secret of the webhook, and its timestamp that it
is not an old one that somebody sends again. A message can arrive more than once, always with the
same id: only the first one is printed.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

TOLERANCE = 300
"""Seconds by which the clocks of both sides may differ."""

MAX_BODY = 20_000
"""Bytes; Tiltyard sends no longer message."""


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Return whether a message is signed with a secret, at about this time."""
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not timestamp.isascii() or not timestamp.isdigit():
        return False
    if abs(now - int(timestamp)) > TOLERANCE:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(digest).decode()}"
    # While a secret is rotated, there is a signature for each.
    found = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), each.encode()) for each in found)


SECRET = os.environ.get("WEBHOOK_SECRET", "")
seen = set[str]()  # In a database, if it has to survive a restart


class Receiver(BaseHTTPRequestHandler):
    """Prints each event once."""

    def do_POST(self) -> None:
        """Answer 204 to a genuine message, so that it is not sent again."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY:
            self._answer(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not is_genuine(SECRET, headers, body, time.time()):
            self._answer(401)
            return
        message_id = headers["webhook-id"]
        if message_id not in seen:
            message = json.loads(body)
            print(message["type"], message["data"].get("object", ""), flush=True)
            seen.add(message_id)
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log no request."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print(f"receiving on port {server.server_port}", flush=True)
    server.serve_forever()
