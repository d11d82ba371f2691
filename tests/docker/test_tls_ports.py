"""TLS ports through the whole stack: real containers and real TLS clients."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo_game import TCP_PORT, UDP_PORT, Image
from tests.docker.stack import PATIENCE, Stack, a_stack, eventually
from tests.support.agent.tls_players import HOST, issue, trusting
from tests.support.certificates import Signer

AUTHORITY = Signer.new()
GAME = "tls-game"
PORTS = [
    {"requested": TCP_PORT, "protocol": "tcp", "tls": True},
    {"requested": UDP_PORT, "protocol": "udp", "tls": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the host's certificate, which the agent checks every 10 s."""
    return tmp_path_factory.mktemp("certificate")


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image, folder: Path) -> Iterator[Stack]:
    files = issue(AUTHORITY, folder)
    named: dict[str, Any] = {
        "tls_certificate": str(files.certificate),
        "tls_key": str(files.key),
    }
    with a_stack(docker_engine, demo_image, **named) as stack:
        stack.make_game(GAME, ports=PORTS)
        yield stack


@contextlib.contextmanager
def playing(session: dict[str, Any]) -> Iterator[ssl.SSLSocket]:
    """A player's connection after the game's greeting."""
    address = (session["host"], session["ports"][0]["host"])
    with (
        socket.create_connection(address, PATIENCE) as wire,
        trusting(AUTHORITY).wrap_socket(wire, server_hostname=HOST) as player,
    ):
        greeting = player.recv(1024)
        if greeting != f"demo game {session['id']}\n".encode():
            raise ConnectionError(f"greeted with {greeting!r}")
        yield player


def echoes(player: ssl.SSLSocket, text: bytes = b"are you there?") -> bool:
    player.sendall(text)
    received = b""
    while len(received) < len(text) and (part := player.recv(65536)):
        received += part
    return received == text


def serial(player: ssl.SSLSocket) -> str:
    found = player.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def serves(session: dict[str, Any]) -> bool:
    try:
        with playing(session) as player:
            return echoes(player)
    except OSError:
        return False


def has_ended(player: ssl.SSLSocket) -> bool:
    """Wait for the end of a connection."""
    try:
        return player.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_tls_port_accepts_tls_alone(stack: Stack) -> None:
    session = stack.start(image=GAME)
    asked = [(port["type"], port["container"]) for port in session["ports"]]
    assert asked == [("tcp", TCP_PORT), ("udp", UDP_PORT)]
    eventually(lambda: serves(session), "the game is reached by TLS")
    [container] = stack.containers().values()
    bindings = container.attrs["NetworkSettings"]["Ports"]
    published = [port for port, bound in bindings.items() if bound]
    assert published == [f"{UDP_PORT}/udp"], "the engine publishes nothing in clear"
    address = (session["host"], session["ports"][0]["host"])
    with socket.create_connection(address, PATIENCE) as wire:
        wire.sendall(b"in clear\n")
        assert b"demo game" not in wire.recv(1024)
    with playing(session) as player:
        stack.end(session["id"])
        assert has_ended(player)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, PATIENCE)


@pytest.mark.slow
def test_a_restarted_game_is_reached_at_the_same_port(stack: Stack) -> None:
    session = stack.start(image=GAME, restart=True)
    eventually(lambda: serves(session), "the game is reached")
    with playing(session) as player:
        [container] = [each for each in stack.containers().values() if each.status == "running"]
        container.kill("SIGKILL")
        assert has_ended(player)
    eventually(lambda: serves(session), "the next run is reached")
    assert stack.record(session["id"])["restart_count"] == 1
    stack.end(session["id"])


def test_new_certificate_keeps_open_connections(stack: Stack, folder: Path) -> None:
    session = stack.start(image=GAME)
    eventually(lambda: serves(session), "the game is reached")

    def served_with() -> str:
        with playing(session) as later:
            return serial(later)

    with playing(session) as player:
        before = serial(player)
        issue(AUTHORITY, folder)
        eventually(lambda: served_with() != before, "new connections have the new one")
        assert echoes(player, b"still here")
    stack.end(session["id"])


@pytest.mark.slow
def test_an_agent_that_was_killed_serves_its_ports_again(stack: Stack) -> None:
    session = stack.start(image=GAME)
    eventually(lambda: serves(session), "the game is reached")
    before = stack.pids()
    with playing(session) as player:
        stack.agent.kill()
        assert has_ended(player)  # as documented in the operations page
    stack.agent.start()
    eventually(lambda: serves(session), "it is reached again")
    assert stack.pids() == before
    stack.end(session["id"])


def test_in_host_network_the_game_binds_the_assigned_port(stack: Stack) -> None:
    stack.make_game("tls-host-game", ports=PORTS, networkMode="host")
    session = stack.start(image="tls-host-game", args=["--ports-from-env"])
    eventually(lambda: serves(session), "the game is reached by TLS")
    [port, _] = stack.record(session["id"])["ports"]
    environment = stack.record(session["id"])["injected_env"]
    assert environment[f"TILTYARD_PORT_TCP_{TCP_PORT}"] == str(port["inner"])
    assert session["ports"][0]["host"] == port["host"]
    assert port["host"] != port["inner"]
    stack.end(session["id"])
