import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from agent.network.port_probe import PortProbe
from tests.support.harness import free_port
from tiltyard.contract import Protocol

TYPES = {Protocol.TCP: socket.SOCK_STREAM, Protocol.UDP: socket.SOCK_DGRAM}
ANY = "0.0.0.0"
HOME = "127.0.0.1"


@contextmanager
def bound(protocol: Protocol, address: str, *options: tuple[int, int, int]) -> Iterator[int]:
    """Bind a socket in this process; yield its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, TYPES[protocol]) as server:
        for option in options:
            server.setsockopt(*option)
        if protocol is Protocol.TCP:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port()
        server.bind((address, port))
        if protocol is Protocol.TCP:
            server.listen()
        yield port


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("address", [ANY, HOME, "127.0.0.2"])
def test_port_in_use_is_not_free(protocol: Protocol, address: str) -> None:
    with bound(protocol, address) as port:
        assert not PortProbe(ANY).is_free(protocol, port)
        assert PortProbe(ANY).is_free(next(p for p in Protocol if p is not protocol), port)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("bind_address", [ANY, "::"])
def test_port_in_use_on_ipv6_only_is_not_free(protocol: Protocol, bind_address: str) -> None:
    with bound(protocol, "::", (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)) as port:
        assert not PortProbe(bind_address).is_free(protocol, port)
        assert PortProbe(HOME).is_free(protocol, port)


@pytest.mark.parametrize("protocol", Protocol)
def test_port_in_use_on_both_families_is_not_free(protocol: Protocol) -> None:
    with bound(protocol, "::", (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)) as port:
        assert not PortProbe(HOME).is_free(protocol, port)


@pytest.mark.parametrize("protocol", Protocol)
def test_port_in_use_on_another_address_is_free(protocol: Protocol) -> None:
    with bound(protocol, "127.0.0.2") as port:
        assert PortProbe(HOME).is_free(protocol, port)
        assert not PortProbe("127.0.0.2").is_free(protocol, port)


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_shareable_udp_port_is_not_free(option: int) -> None:
    with bound(Protocol.UDP, ANY, (socket.SOL_SOCKET, option, 1)) as port:
        assert not PortProbe(ANY).is_free(Protocol.UDP, port)


def test_ignores_connections_in_time_wait() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOME, free_port()))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection((HOME, port)) as player:
            accepted, _ = server.accept()
            accepted.close()  # closing first leaves TIME_WAIT
            assert player.recv(1) == b""
    with socket.socket() as naive, pytest.raises(OSError, match="in use"):
        naive.bind((HOME, port))
    assert PortProbe(HOME).is_free(Protocol.TCP, port)


@pytest.mark.parametrize("protocol", Protocol)
def test_probe_releases_port(protocol: Protocol) -> None:
    def game_binds(port: int) -> bool:
        with socket.socket(socket.AF_INET, TYPES[protocol]) as game, suppress(OSError):
            game.bind((ANY, port))
            return True
        return False

    # Not one with connections in TIME_WAIT, of a run of tests before this one.
    port = next(filter(game_binds, iter(free_port, None)))
    for _ in range(2):
        assert PortProbe(ANY).is_free(protocol, port)
    assert game_binds(port)


def test_unknown_port_counts_as_free() -> None:
    assert PortProbe("192.0.2.1").is_free(Protocol.UDP, 20000)  # not an address of this machine
