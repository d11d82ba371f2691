"""HTTP API client for commands, and printing of its responses."""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from controlplane.cli.columns import Column, table
from controlplane.cli.console import echo, remark
from tiltyard.runtime.tables import printable

CALL_TIMEOUT = 10.0  # Seconds. The API responds within milliseconds, except to starts and stops.

T = TypeVar("T")


class ApiError(Exception):
    """A failed call. The message has one line, plus one per violation."""


class Api:
    """An API client with one token; opens a connection per call."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext, *, as_json: bool) -> None:
        """`url`: base address that passed `check_url`. `as_json`: print JSON."""
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls
        self._as_json = as_json

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        timeout: float = CALL_TIMEOUT,
    ) -> Any:
        """Send a request and return the response's JSON. Omits query parameters that are None.

        Raises:
            ApiError: The request was refused, or there was no valid response.
        """
        url = "/".join((self._url, *(quote(part, safe="") for part in path)))
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url += f"?{urlencode(given)}" if given else ""
        status, answer = asyncio.run(self._exchange(method, url, body, timeout))
        if status == 204:
            return None
        try:
            content = json.loads(answer)
        except ValueError:
            raise ApiError(f"{self._url} answered {status} without JSON") from None
        if 200 <= status < 300:
            return content
        raise ApiError(_refusal(content) or f"{self._url} answered {status}")

    def print(self, content: Any, lines: Callable[[Any], list[str]]) -> None:
        """Print a response; `lines` formats it."""
        shown = [json.dumps(content)] if self._as_json else self.read(content, lines)
        for line in shown:
            echo(printable(line))

    def read(self, content: Any, found: Callable[[Any], T]) -> T:
        """Apply `found` to a response.

        Raises:
            ApiError: The response has another format.
        """
        try:
            return found(content)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise ApiError("this version does not know the format of the response") from None

    def print_table(self, content: Any, rows: str, columns: Sequence[Column]) -> None:
        """Print the list in the property `rows`, and how to get the next page."""
        self.print(content, lambda content: table(columns, content[rows]))
        if not self._as_json and content.get("before") is not None:
            remark(f"there is more: --before {printable(str(content['before']))}")

    def print_token(self, content: Any) -> None:
        """Print a new token, alone on standard output so that it can be redirected to a file.

        Raises:
            click.ClickException: The token cannot be printed, and is lost.
        """
        if not self._as_json:
            remark("the token, which cannot be shown again:")
        try:
            self.print(content, lambda content: [str(content["token"])])
        except OSError as error:
            lost = printable(self.read(content, lambda content: str(content["id"])))
            text = f"cannot print the token: {error}; revoke it with `token revoke {lost}`"
            raise click.ClickException(text) from None

    async def _exchange(
        self, method: str, url: str, body: object, timeout: float
    ) -> tuple[int, bytes]:
        # aiohttp is slow to import, and help does not need it.
        import aiohttp  # noqa: PLC0415
        from yarl import URL  # noqa: PLC0415

        from tiltyard.runtime.unreachable import why  # noqa: PLC0415

        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
                # A redirect would leak the token.
                session.request(
                    method,
                    URL(url, encoded=True),
                    data=None if body is None else json.dumps(body).encode(),
                    headers=headers,
                    ssl=self._tls,
                    allow_redirects=False,
                ) as response,
            ):
                return response.status, await response.read()
        except TimeoutError:
            raise ApiError(f"{self._url} did not answer within {timeout:g} s") from None
        except ssl.SSLError as error:
            raise ApiError(f"no TLS connection with {self._url}: {why(error)}") from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # of an invalid host name
            raise ApiError(f"{self._url} cannot be reached: {why(error)}") from None


def check_url(url: str) -> None:
    """Check a base address.

    Raises:
        ValueError: Not usable as a base address.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must contain neither a user nor a query")
    _ = parts.port


def is_in_clear(url: str) -> bool:
    """Return whether the token would cross a network unencrypted.

    Names except `localhost` are not looked up: the result may change before the connection.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _refusal(content: Any) -> str:
    """Format an ErrorResponse; empty if it is something else."""
    try:
        if violations := content.get("violations", ()):
            lines = [f"{v['field']}: {v['description']}" for v in violations]
            return "\n  ".join(["invalid request", *map(printable, lines)])
        return printable(str(content["details"]))
    except (AttributeError, KeyError, TypeError):
        return ""
