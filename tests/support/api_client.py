"""A small client of the public HTTP API, for tests, the demo and the benchmark."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

_TIMEOUT = 30.0


class ApiError(Exception):
    """An answer with an unexpected status."""


@dataclass(frozen=True)
class Answer:
    """One answer of the API."""

    request: str
    status: int
    headers: Mapping[str, str]  # By lower-case name
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    def expect(self, status: int) -> Answer:
        """Return this answer if it has this status, else raise ApiError with its text."""
        if self.status != status:
            text = self.body.decode(errors="replace").strip() or "no body"
            raise ApiError(f"{self.request}: {self.status} instead of {status}: {text}")
        return self


class ApiClient:
    """Calls with one token. Thread-safe: every call has its own connection."""

    def __init__(self, base_url: str, token: str, *, made: list[str] | None = None) -> None:
        """Add the id of each started session to `made`."""
        self.base_url = base_url
        self.token = token
        self._made = made if made is not None else []
        self._address = urlsplit(base_url).netloc

    def request(self, method: str, path: str, **more: Any) -> Answer:
        """Send one request, as `_send` does, and read the whole answer."""
        with self._send(method, path, **more) as response:
            answer = Answer(
                f"{method} {path}",
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        if (method, path, answer.status) == ("POST", "/session", 201):
            self._made.append(answer.json()["id"])
        return answer

    def get(self, path: str, /, **query: str) -> Answer:
        """GET `path`."""
        return self.request("GET", path, query=query)

    def post(self, path: str, body: object) -> Answer:
        """POST `body` to `path`."""
        return self.request("POST", path, body=body)

    def put(self, path: str, body: object) -> Answer:
        """PUT `body` to `path`."""
        return self.request("PUT", path, body=body)

    def sessions(self, **query: str) -> list[dict[str, Any]]:
        """GET /session: those that run or drain; with `all="true"` any."""
        found: list[dict[str, Any]] = self.get("/session", **query).expect(200).json()["sessions"]
        return found

    def delete_session(self, session_id: str) -> Answer:
        """DELETE /session/{id}; the id may have any characters."""
        return self.request("DELETE", f"/session/{quote(session_id, safe='')}")

    @contextmanager
    def stream(
        self,
        path: str,
        /,
        *,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Iterator[http.client.HTTPResponse]:
        """GET `path` and yield the unread answer; leaving the block disconnects.

        `timeout` bounds each read.
        """
        with self._send("GET", path, query=query, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                Answer(f"GET {path}", response.status, {}, response.read()).expect(200)
            yield response

    @contextmanager
    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; `body` is sent as JSON unless None."""
        connection = http.client.HTTPConnection(self._address, timeout=timeout or _TIMEOUT)
        sent = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        try:
            connection.request(
                method,
                f"{path}?{urlencode(query)}" if query else path,
                body=None if body is None else json.dumps(body).encode(),
                headers=sent,
            )
            yield connection.getresponse()
        finally:
            connection.close()
