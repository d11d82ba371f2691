"""Common parts of operator commands: address, token, output."""

import errno
import functools
import json
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from controlplane.cli import console
from controlplane.cli.api_client import (
    CALL_TIMEOUT,
    ApiClient,
    ApiError,
    Reply,
    check_url,
    is_in_clear,
)
from controlplane.cli.columns import Column, table
from controlplane.domain.tokens import parse
from controlplane.settings.defaults import API_LISTEN, STATE_DIR
from tiltyard.runtime.tables import printable

DEFAULT_URL = f"http://{API_LISTEN}"
DEFAULT_TOKEN_FILE = str(STATE_DIR / "initial-tokens.json")
_STDIN = Path("-")
_Shown = TypeVar("_Shown")


def _url(context: click.Context, _: object, url: str) -> str:
    try:
        check_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if is_in_clear(url) and not context.params["insecure"]:
        raise click.BadParameter(
            "would send the token in clear text: use https://, or --insecure on a trusted network"
        )
    return url


_OPTIONS = (
    click.option(
        "--url",
        callback=_url,
        envvar="TILTYARD_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="The base address of the control plane.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path, allow_dash=True),
        envvar="TILTYARD_TOKEN_FILE",
        default=DEFAULT_TOKEN_FILE,
        show_default=True,
        show_envvar=True,
        help="File with the token, or the output of the first start; - is standard input.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="TILTYARD_CA_FILE",
        show_envvar=True,
        help="Certificates (PEM) to trust instead of the system's.",
    ),
    click.option(
        "--insecure",
        is_flag=True,
        is_eager=True,  # --url asks for it
        help="Allow sending the token in clear text over http:// to another machine.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the response of the API."),
)


class Failure(click.ClickException):
    """Ends a command with exit code 1, one line, and one for each violation."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(self.message, err=True)


class Api:
    """API client and output of a command."""

    def __init__(self, client: ApiClient, *, as_json: bool) -> None:
        """Print responses as JSON, or for people."""
        self._client = client
        self._as_json = as_json

    def get(self, *path: str, **query: object) -> Reply:
        """GET; a parameter that is None is left out."""
        given = {name: _parameter(value) for name, value in query.items() if value is not None}
        return self._client.call("GET", *path, query=given)

    def post(self, *path: str, body: object) -> Reply:
        """POST."""
        return self._client.call("POST", *path, body=body)

    def put(self, *path: str, body: object = None) -> Reply:
        """PUT."""
        return self._client.call("PUT", *path, body=body)

    def delete(self, *path: str, timeout: float = CALL_TIMEOUT) -> Reply:
        """DELETE."""
        return self._client.call("DELETE", *path, timeout=timeout)

    def print(self, reply: Reply, lines: Callable[[Any], list[str]]) -> None:
        """Print a response; `lines` formats it."""
        if self._as_json:
            console.echo(reply.text)
            return
        for line in self.read(reply, lines):
            console.echo(printable(line))

    def read(self, reply: Reply, found: Callable[[Any], _Shown]) -> _Shown:
        """Take out of an answer what `found` finds in it.

        Raises:
            ApiError: It is not there.
        """
        try:
            return found(reply.content)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise ApiError("this version does not know the format of the response") from None

    def print_table(self, reply: Reply, rows: str, columns: Mapping[str, Column]) -> None:
        """Print the list in the answer's property `rows`."""
        self.print(reply, lambda content: table(columns, content[rows]))

    def print_token(self, reply: Reply, account: str | None) -> None:
        """Print a new token, alone on standard output, so that it can be a token file.

        `account` is whose it is; None: an operator's.

        Raises:
            Failure: It cannot be printed, and is lost.
        """
        whose = printable(f"account {account}" if account else "an operator")
        if not self._as_json:
            console.remark(f"the token of {whose}, which cannot be shown again:")
        try:
            self.print(reply, lambda content: [str(content["token"])])
        except OSError as error:
            token_id = printable(self.read(reply, lambda content: str(content["id"])))
            of = f" --account {printable(account)}" if account else ""
            raise Failure(
                f"cannot print the token: {error}\n"
                f"  it is lost: end it with `token revoke {token_id}`\n"
                f"  and make another for {whose} with `token create NAME{of} --scope …`"
            ) from None

    def note_more(self, reply: Reply) -> None:
        """Print how to get the next page of a list."""
        if not self._as_json and reply.content.get("before") is not None:
            console.remark(f"there is more: --before {printable(str(reply.content['before']))}")


def calls(doing: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command's function call the API; failures read `cannot <doing>: …`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(
            *arguments: object,
            url: str,
            token_file: Path,
            ca_file: Path | None,
            insecure: bool,
            as_json: bool,
            **more: object,
        ) -> None:
            if insecure and is_in_clear(url):
                console.remark(f"warning: the token is sent in clear text to {url}")
            try:
                client = ApiClient(url, _token(token_file), _tls(ca_file))
                command(Api(client, as_json=as_json), *arguments, **more)
            except ApiError as error:
                lines = [f"{printable(f)}: {printable(d)}" for f, d in error.violations]
                text = f"cannot {doing}: {printable(error.text)}"
                raise Failure("\n  ".join((text, *lines))) from None
            except OSError as error:
                if error.errno == errno.EPIPE:  # the reader had enough: click ends silently
                    raise
                raise Failure(f"cannot print the response: {error}") from None

        made: Callable[..., None] = run
        for option in reversed(_OPTIONS):
            made = option(made)
        return made

    return decorate


def confirmed(question: str, *, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless `yes`.

    Raises:
        click.UsageError: There is no terminal.
        click.Abort: No.
    """
    console.confirmed(printable(question), yes=yes)


YES = click.option("--yes", is_flag=True, help="Do not ask.")


def _parameter(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _token(file: Path) -> str:
    try:
        text = (sys.stdin.read() if file == _STDIN else file.read_text("utf-8")).strip()
    except OSError as error:
        raise ApiError(f"{file} (--token-file) cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if text.startswith("{"):
        text = _operator_token(text)
    if parse(text) is None:
        raise ApiError(f"{file} (--token-file) holds no token")
    return text


def _operator_token(text: str) -> str:
    """Read the operator token from the output of the first start."""
    try:
        found = json.loads(text)["operator_token"]
    except (KeyError, ValueError):
        return ""
    return found if isinstance(found, str) else ""


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        raise ApiError(f"{ca_file} (--ca-file) cannot be used: {error.strerror}") from None
