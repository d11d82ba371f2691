"""Common parts of operator commands: options, API calls, and generic list and delete commands."""

import errno
import functools
import json
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from controlplane.cli.api import Api, ApiError, check_url, is_in_clear
from controlplane.cli.columns import Column
from controlplane.cli.console import confirmed, remark
from controlplane.domain.access.tokens import parse
from controlplane.settings.defaults import API_LISTEN, STATE_DIR

_STDIN = Path("-")
NAME = click.argument("name")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


def _pairs(_: object, __: object, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE")
        pairs[key] = value
    return pairs


PAIRS: dict[str, Any] = {"multiple": True, "callback": _pairs, "metavar": "KEY=VALUE"}


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
        default=f"http://{API_LISTEN}",
        show_default=True,
        show_envvar=True,
        help="The base address of the control plane.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path, allow_dash=True),
        envvar="TILTYARD_TOKEN_FILE",
        default=str(STATE_DIR / "initial-tokens.json"),
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
        is_eager=True,  # the callback of --url reads it
        help="Allow sending the token in clear text over http:// to another machine.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the response of the API."),
)


class Failure(click.ClickException):
    """Ends a command with exit code 1 and prints its message."""

    def show(self, file: Any = None) -> None:
        """Print the message."""
        remark(self.message)


def with_options(options: Sequence[Any]) -> Callable[[Any], Any]:
    """Add several options to a command."""
    return lambda command: functools.reduce(lambda made, one: one(made), options[::-1], command)


def calls(doing: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass an `Api` to a command's function; failures read `cannot <doing>: …`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(
            *,
            url: str,
            token_file: Path,
            ca_file: Path | None,
            insecure: bool,
            as_json: bool,
            **more: object,
        ) -> None:
            if insecure and is_in_clear(url):
                remark(f"warning: the token is sent in clear text to {url}")
            try:
                command(Api(url, _token(token_file), _tls(ca_file), as_json=as_json), **more)
            except ApiError as error:
                raise Failure(f"cannot {doing}: {error}") from None
            except OSError as error:
                if error.errno == errno.EPIPE:  # click exits silently
                    raise
                raise Failure(f"cannot print the response: {error}") from None

        made: Callable[..., None] = with_options(_OPTIONS)(run)
        return made

    return decorate


def lists(
    group: click.Group, kinds: str, path: str, *, rows: str, columns: Sequence[Column]
) -> None:
    """Add the command `list`. `rows`: property of the response with the list."""

    @group.command("list", help=f"List the {kinds}.")
    @calls(f"list {kinds}")
    def run(api: Api) -> None:
        api.print_table(api.call("GET", *path.split("/")), rows, columns)


def removes(group: click.Group, verb: str, kind: str, text: str, *, question: str = "") -> None:
    """Add a command that deletes an object by name. `question`: ask for confirmation."""

    @group.command(verb, help=text)
    @NAME
    @YES
    @calls(f"{verb} the {kind}")
    def run(api: Api, name: str, *, yes: bool) -> None:
        confirmed(question.format(name), yes=yes or not question)
        api.call("DELETE", "operator", kind.replace(" ", "-"), name)


def _token(file: Path) -> str:
    try:
        text = (sys.stdin.read() if file == _STDIN else file.read_text("utf-8")).strip()
        if text.startswith("{"):  # the output of the first start
            text = str(json.loads(text)["operator_token"])
    except OSError as error:
        raise ApiError(f"{file} (--token-file) cannot be read: {error.strerror}") from None
    except (KeyError, ValueError):
        text = ""
    if parse(text) is None:
        raise ApiError(f"{file} (--token-file) contains no token")
    return text


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        raise ApiError(f"{ca_file} (--ca-file) cannot be used: {error.strerror}") from None
