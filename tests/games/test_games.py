"""Real servers in sessions, each asked, joined and stopped over its own protocol."""

import io
import tarfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import Stack, eventually
from tests.games.catalogue import GAMES, Game
from tests.games.images import Images
from tests.games.page import Row
from tests.support.deployment import application, enable_tag

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.root]

_READY = {"Prefer": "wait=ready"}


def _marks(game: Game) -> list[pytest.MarkDecorator]:
    """Some run in the gate, the others show the same kind of thing."""
    gate = pytest.mark.slow if game.in_gate else pytest.mark.thorough
    return [gate, pytest.mark.timeout(game.timeout)]


@pytest.mark.parametrize(
    "game", [pytest.param(game, id=game.name, marks=_marks(game)) for game in GAMES]
)
def test_a_game_of_debian_is_hosted(
    game: Game, stack: Stack, images: Images, write_row: Callable[[Row], None]
) -> None:
    images.push(game)
    _enable(stack, game)
    requested = time.monotonic()
    answer = stack.try_to_start(image=game.name, args=list(game.args), headers=_READY)
    ready = time.monotonic()
    made = answer.expect(201).json()
    public = {f"{port['type']}/{port['container']}": port["host"] for port in made["ports"]}
    found = game.play(made["host"], public)
    for name, value in game.facts.items():
        assert found.facts[name] == (made["id"] if value == "…" else value), found.facts
    eventually(lambda: game.logs in _log(stack, made), f"{game.name} logs {game.logs!r}")
    memory = _resident_bytes(stack)

    stack.end(made["id"])
    report = stack.report(made["id"])
    assert report["end_reason"] == "stopped"
    assert report["exitCode"] == game.exit_code, report
    assert report["signalDelivered"] is True
    assert report["forced"] is False
    saved = _saved(stack, game, made) if game.saves else ""
    write_row(
        Row(
            game=game.name,
            package=game.package,
            version=images.version(game),
            ports=game.ports,
            ready=ready - requested,
            answered=max(0.0, found.answered - ready),
            joined=found.joined,
            exit_code=report["exitCode"],
            saved=saved,
            memory=memory,
            date=datetime.now(tz=UTC).date().isoformat(),
        )
    )


def _enable(stack: Stack, game: Game) -> None:
    """Create the application of a game, whose tag a host has pulled."""
    ports = []
    for port in game.ports:
        protocol, _, number = port.partition("/")
        ports.append({"requested": int(number), "protocol": protocol, "tls": False})
    limits = {"cpu": 2, "ram": game.ram}
    asked = application(game.name, repository=game.name, ports=ports, limits=limits)
    stack.client.post("/application", asked).expect(201)
    enable_tag(stack.client, game.name, "v1")


def _log(stack: Stack, made: Mapping[str, Any]) -> str:
    return stack.client.get("/logs", id=made["id"]).expect(200).body.decode(errors="replace")


def _resident_bytes(stack: Stack) -> int:
    """The memory of the processes of the only session that runs."""
    containers = stack.containers().values()
    [container] = [each for each in containers if each.status == "running"]
    processes = container.top()["Processes"]
    statuses = [Path(f"/proc/{process[1]}/status").read_text() for process in processes]
    sizes = [line.split()[1] for text in statuses for line in text.splitlines() if "VmRSS" in line]
    return sum(map(int, sizes)) * 1024


def _saved(stack: Stack, game: Game, made: Mapping[str, Any]) -> str:
    """Return the path of what the game saved, from the artifact."""
    body = stack.client.get("/artifacts", session=made["id"], path=game.saves).expect(200).body
    with tarfile.open(fileobj=io.BytesIO(body)) as artifact:
        files = [member.name for member in artifact.getmembers() if member.size]
    found = [name for name in files if game.saved in name]
    assert found, files
    return found[0]
