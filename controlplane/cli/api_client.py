"""A client of the HTTP API: what the operator's commands call."""

import ipaddress
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

CALL_TIMEOUT = 10.0
"""The API responds within milliseconds, except to starts and stops."""

STOP_TIMEOUT = 30.0
"""A stop is answered within 12 s; the rest is for a proxy that retries."""

_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))


@dataclass(eq=False)
class ApiError(Exception):
    """A failed call; the text is for people."""

    text: str
    violations: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful response: its JSON and its text; both empty without a body."""

    text: str = ""
    content: Any = None


class ApiClient:
    """An API client with one token; opens a connection per call."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext) -> None:
        """Name the base address, which `check_url` accepts; nothing is dialled yet."""
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        timeout: float = CALL_TIMEOUT,
    ) -> Reply:
        """Send a request and wait for its answer; `path` is in parts, whatever they hold.

        Raises:
            ApiError: The control plane refuses, or no valid answer comes.
        """
        from controlplane.cli.transport import exchange  # noqa: PLC0415  # it says why

        url = "/".join((self._url, *(quote(part, safe="") for part in path)))
        if query:
            url += f"?{urlencode(query)}"
        sent = None if body is None else json.dumps(body).encode()
        try:
            status, answer = exchange(
                method, url, token=self._token, body=sent, tls=self._tls, timeout=timeout
            )
        except TimeoutError:
            raise ApiError(f"{self._url} did not answer within {timeout:g} s") from None
        except ssl.SSLError as error:
            raise ApiError(f"no TLS connection with {self._url}: {error}") from None
        except ConnectionError as error:
            raise ApiError(f"{self._url} cannot be reached: {error}") from None
        return self._understood(status, answer)

    def _understood(self, status: int, answer: bytes) -> Reply:
        if status == 204:
            return Reply()
        try:
            text = answer.decode()
            content = json.loads(text)
        except ValueError:
            raise ApiError(f"{self._url} answered {status} without JSON") from None
        if 200 <= status < 300:
            return Reply(text, content)
        raise _refusal(content) or ApiError(f"{self._url} answered {status}")


def check_url(url: str) -> None:
    """Check a base address.

    Raises:
        ValueError: It is no address of a control plane.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must hold neither a user nor a query")
    _ = parts.port


def is_in_clear(url: str) -> bool:
    """Return whether the token can be read on its way to a base address that `check_url` accepts.

    A name but `localhost` is not looked up: what it means may change before it is dialled.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    return not any(address in network for network in _LOOPBACK)


def _refusal(content: Any) -> ApiError | None:
    """Read an ErrorResponse; None when it is something else."""
    try:
        violations = tuple((v["field"], v["description"]) for v in content.get("violations", ()))
        text = "invalid request" if violations else content["details"]
    except (AttributeError, KeyError, TypeError):
        return None
    return ApiError(str(text), violations)
