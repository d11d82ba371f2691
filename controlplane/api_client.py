"""A client of the HTTP API: what the operator's commands call."""

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

CALL_TIMEOUT = 10.0
"""The API answers all but starts and stops in milliseconds."""

STOP_TIMEOUT = 30.0
"""A stop is answered within 12 s; the rest is for a proxy that retries."""


@dataclass(eq=False)
class ApiError(Exception):
    """A call that was not answered as it should be; the text is for people."""

    text: str
    violations: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer: its JSON, also as it was sent; both empty for one without a body."""

    text: str = ""
    content: Any = None


class ApiClient:
    """Speaks with one control plane as the holder of one token; each call is a connection."""

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
            ApiError: The control plane refuses, or nobody answers what can be understood.
        """
        url = "/".join((self._url, *(quote(part, safe="") for part in path)))
        if query:
            url += f"?{urlencode(query)}"
        try:
            status, answer = asyncio.run(self._exchange(method, url, body, timeout))
        except TimeoutError:
            raise ApiError(f"{self._url} did not answer within {timeout:g} s") from None
        except ssl.SSLError as error:
            raise ApiError(f"no TLS connection with {self._url}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(f"{self._url} cannot be reached: {_why(error)}") from None
        return self._understood(status, answer)

    async def _exchange(
        self, method: str, url: str, body: object, timeout: float
    ) -> tuple[int, bytes]:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
            # A redirect would take the token to somewhere else.
            session.request(
                method,
                URL(url, encoded=True),
                data=sent,
                headers=headers,
                ssl=self._tls,
                allow_redirects=False,
            ) as response,
        ):
            return response.status, await response.read()

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


def _why(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):  # its own text is full of inner things
        error = error.os_error
    if isinstance(error, OSError) and error.strerror:
        # An error of the resolver has a negative number.
        return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return str(error) or type(error).__name__


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


def _refusal(content: Any) -> ApiError | None:
    """Read an ErrorResponse; None when it is something else."""
    try:
        violations = tuple((v["field"], v["description"]) for v in content.get("violations", ()))
        text = content["message"] if violations else content["details"]
    except (AttributeError, KeyError, TypeError):
        return None
    return ApiError(str(text), violations)
