"""The debug commands, which call the agent over its unix socket."""

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from agent.cli import views
from agent.cli.options import AS_JSON, SOCKET, asked
from tiltyard.runtime.tables import printable


def _text(_: click.Context, parameter: click.Parameter, value: str) -> str:
    """Reject arguments that are not UTF-8, since messages cannot contain them."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("it is not UTF-8", param=parameter) from None
    return value


_ID = click.argument("given", metavar="ID", callback=_text)


@click.command()
@SOCKET
@AS_JSON
def status(socket: Path, *, as_json: bool) -> None:
    """Show the host: capacity, ports, images, engine, warnings."""
    with asked(socket) as agent:
        host = agent.host()
        live = list(agent.sessions(live_only=True))
        _show(host, lambda _: views.host_lines(host, live), as_json=as_json)


@click.command()
@SOCKET
@click.option("--all", "everything", is_flag=True, help="Include ended sessions.")
@AS_JSON
def sessions(socket: Path, *, everything: bool, as_json: bool) -> None:
    """List sessions, oldest first."""
    with asked(socket) as agent:
        found = agent.sessions(live_only=not everything)
        _show(found, views.session_lines, as_json=as_json)


@click.command()
@SOCKET
@_ID
@AS_JSON
def inspect(socket: Path, given: str, *, as_json: bool) -> None:
    """Show everything about one session."""
    with asked(socket) as agent:
        _show(agent.find(given), views.message_lines, as_json=as_json)


@click.command()
@SOCKET
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the session ends.")
@_ID
def logs(socket: Path, given: str, *, follow: bool) -> None:
    """Print a session's log; control characters are escaped on a terminal."""
    with asked(socket) as agent:
        internal_id = agent.find(given)["internal_id"]
        write = _to_terminal() if sys.stdout.isatty() else sys.stdout.buffer.write
        for chunk in agent.logs(internal_id, follow=follow):
            write(chunk)
            sys.stdout.flush()


@click.command()
@SOCKET
@_ID
@AS_JSON
def report(socket: Path, given: str, *, as_json: bool) -> None:
    """Show how a session ended, without its log."""
    with asked(socket) as agent:
        found = agent.report(agent.find(given)["internal_id"])
        _show(found, views.message_lines, as_json=as_json)


@click.command()
@SOCKET
@_ID
@click.argument("path", callback=_text)
def artifact(socket: Path, given: str, path: str) -> None:
    """Write a file or folder of an ended session to standard output, as .tar.gz."""
    with asked(socket) as agent:
        if sys.stdout.isatty():
            raise click.UsageError("output is binary: redirect it to a file, > NAME.tar.gz")
        for chunk in agent.artifact(agent.find(given)["internal_id"], path):
            sys.stdout.buffer.write(chunk)


@click.command()
@SOCKET
@AS_JSON
def images(socket: Path, *, as_json: bool) -> None:
    """List images, pulls in progress, and the number of sessions per image."""
    with asked(socket) as agent:
        found = views.images(agent.images(), agent.sessions(live_only=True))
        _show(found, views.image_lines, as_json=as_json)


@click.command()
@SOCKET
@_ID
@AS_JSON
def stop(socket: Path, given: str, *, as_json: bool) -> None:
    """Stop a session and wait for its end."""
    with asked(socket) as agent:
        ended = agent.stop(agent.find(given)["internal_id"])
        _show(ended, views.message_lines, as_json=as_json)


COMMANDS = (status, sessions, inspect, logs, report, artifact, images, stop)


def _show(found: Any, lines: Callable[[Any], list[str]], *, as_json: bool) -> None:
    """Print one message, or a list with one JSON object per line."""
    if not as_json:
        texts: Iterable[str] = lines(found)
    elif isinstance(found, Mapping):
        texts = [json.dumps(found, indent=2)]
    else:
        texts = map(json.dumps, found)
    for text in texts:
        click.echo(text)


def _to_terminal() -> Callable[[bytes], object]:
    """Return a writer that escapes control characters."""
    text = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(chunk: bytes) -> object:
        lines = text.decode(chunk).split("\n")
        return sys.stdout.write(
            "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
        )

    return write
