"""Why a session is not ready, in words."""

import pytest

from controlplane.domain.sessions.unbound_ports import describe_bindings
from tiltyard.contract import Protocol
from tiltyard.ends import BoundPort, PortBindings, UnboundPort

QUERY = UnboundPort(Protocol.UDP, 28786, 28786)
GAME = UnboundPort(Protocol.UDP, 28785, 28785)
LOCAL = UnboundPort(Protocol.TCP, 80, 80, loopback=True)
IN_HOST_NETWORK = UnboundPort(Protocol.UDP, 7777, 20000)
RCON = BoundPort(Protocol.TCP, 28785)
WEB = BoundPort(Protocol.TCP, 8080)


@pytest.mark.parametrize(
    ("unbound", "others", "expected"),
    [
        ((QUERY,), (RCON,), "udp/28786 was not bound; tcp/28785 was"),
        (
            (GAME, QUERY),
            (RCON, WEB),
            "udp/28785, udp/28786 were not bound; tcp/28785, tcp/8080 were",
        ),
        ((QUERY,), (), "udp/28786 was not bound"),
        ((LOCAL,), (), "tcp/80 was bound on loopback only"),
        ((LOCAL,), (RCON,), "tcp/80 was bound on loopback only"),
        (
            (LOCAL, QUERY),
            (RCON,),
            "tcp/80 was bound on loopback only; udp/28786 was not bound; tcp/28785 was",
        ),
        ((IN_HOST_NETWORK,), (), "udp/7777 (host port 20000) was not bound"),
        ((), (RCON,), ""),
        ((), (), ""),
    ],
)
def test_names_ports_that_are_missing_and_those_bound_instead(
    unbound: tuple[UnboundPort, ...], others: tuple[BoundPort, ...], expected: str
) -> None:
    assert describe_bindings(PortBindings(unbound, others)) == expected


def test_names_a_few_of_many_ports() -> None:
    ports = tuple(UnboundPort(Protocol.TCP, port, port) for port in range(1, 33))
    text = describe_bindings(PortBindings(ports))
    assert text.startswith("tcp/1, tcp/2, ")
    assert text.endswith("tcp/10 and 22 more were not bound")
