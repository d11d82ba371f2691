import socket
import time
from pathlib import Path
from typing import Any

import pytest

from agent.domain.errors import ImageCannotRunError, NoCertificateError, PortTakenError
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until
from tests.support.agent.keeping import PREPARED, prepared_for
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.tls_players import issue
from tests.support.certificates import Signer
from tests.support.fake_clock import FakeClock
from tests.support.harness import free_port
from tiltyard.contract import EndReason, NetworkMode, PortRequest, Protocol, SessionSpec, State

AUTHORITY = Signer.new()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time.time())  # certificates are valid by the machine's clock


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Any]:
    """The options of an agent with a certificate and one port."""
    port = free_port()
    return {"ports": (port, port), "certificate": issue(AUTHORITY, tmp_path / "pair")}


def tls_spec(*, pinned: int = 0, restart: bool = False, in_host: bool = False) -> SessionSpec:
    ports = (PortRequest(7778, Protocol.TCP, tls=True, pinned=pinned),)
    mode = NetworkMode.HOST if in_host else NetworkMode.BRIDGE
    return a_spec(ports=ports, restart=restart, network_mode=mode)


def is_listened_on(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_host_without_a_certificate_refuses_tls_ports(agent: Agent) -> None:
    with pytest.raises(NoCertificateError):
        await agent.sessions.start(an_id(), tls_spec())
    assert "remove" not in {call for call, _ in agent.engine.calls}, "there is nothing to undo"
    await assert_nothing_is_left(agent)


async def test_agent_listens_from_the_start_to_the_end(host: Host, tls: Any) -> None:
    port = tls["ports"][0]
    async with host(**tls) as agent:
        session = await agent.sessions.start(an_id(), tls_spec())
        [mine] = session.ports
        assert mine.host == port
        assert mine.tls is True
        assert mine.inner == 0
        assert host.engine.ports.published == {}, "only the agent has the container's port"
        assert is_listened_on(port)
        [container] = host.engine.containers(agent.runtime.agent_id)
        assert session.address != ""
        assert session.address == container.address
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert not is_listened_on(port)
        assert agent.nothing_is_held()


async def test_agent_listens_for_a_prepared_container_once_a_session_has_it(
    host: Host, tls: Any
) -> None:
    port = tls["ports"][0]
    async with host(prepared=PREPARED, **tls) as agent:
        prepared = await prepared_for(agent, tls_spec())
        assert not is_listened_on(port)
        session = await agent.sessions.start(an_id(), tls_spec())
        assert session.prepared == prepared.prepared_id
        assert is_listened_on(port)
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert not is_listened_on(port)
        assert agent.nothing_is_held()


async def test_port_of_a_prepared_container_that_another_process_has_taken(
    host: Host, tls: Any
) -> None:
    port = tls["ports"][0]
    async with host(prepared=PREPARED, **tls) as agent:
        await prepared_for(agent, tls_spec())
        with socket.create_server(("127.0.0.1", port)), pytest.raises(PortTakenError):
            await agent.sessions.start(an_id(), tls_spec())
        assert host.engine.all == []
        assert not host.engine.executed
        await assert_nothing_is_left(agent)


async def test_address_is_that_of_the_current_run(host: Host, tls: Any) -> None:
    port = tls["ports"][0]
    async with host(**tls) as agent:
        first = await agent.sessions.start(an_id(), tls_spec(restart=True))
        await agent.fail(first)
        assert is_listened_on(port), "it stays the session's"
        await host.clock.advance(2)
        life = await agent.reached(first.internal_id, State.RUNNING)
        assert life.session.address not in {"", first.address}


async def test_tls_port_in_use_is_skipped(host: Host, tls: Any) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        async with host(**tls | {"ports": (taken, taken + 1)}) as agent:
            session = await agent.sessions.start(an_id(), tls_spec())
            assert session.ports[0].host == taken + 1
            assert session.injected_env["TILTYARD_PORT_TCP_7778"] == str(taken + 1)
            with pytest.raises(PortTakenError):
                await agent.sessions.start(an_id(), tls_spec(pinned=taken))
            await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
            await assert_nothing_is_left(agent)


async def test_failed_start_releases_its_tls_port(host: Host, tls: Any) -> None:
    port = tls["ports"][0]
    async with host(**tls) as agent:
        host.engine.fail_next("start", ImageCannotRunError("no entrypoint"))
        with pytest.raises(ImageCannotRunError):
            await agent.sessions.start(an_id(), tls_spec())
        assert not is_listened_on(port)
        await assert_nothing_is_left(agent)


async def test_restarted_agent_listens_before_the_engine_answers(host: Host, tls: Any) -> None:
    port = tls["ports"][0]
    async with host(**tls) as agent:
        session = await agent.sessions.start(an_id(), tls_spec())
    assert not is_listened_on(port)
    # Without a certificate, starts are refused and existing sessions keep their ports.
    async with host(ports=tls["ports"], reconcile=False) as agent:
        assert is_listened_on(port), "it is still reserved"
        await agent.pass_over()
        life = agent.sessions.life(session.internal_id)
        await until(lambda: life.session.process == session.process)
        assert life.session.address == session.address
        assert is_listened_on(port)
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert not is_listened_on(port)


async def test_process_in_the_host_network_gets_another_port(host: Host, tls: Any) -> None:
    port = tls["ports"][0]
    tls["ports"] = (port, port + 1)
    async with host(**tls) as agent:
        session = await agent.sessions.start(an_id(), tls_spec(in_host=True))
        [mine] = session.ports
        assert mine.host == port
        assert mine.inner == port + 1
        assert session.injected_env["TILTYARD_PORT_TCP_7778"] == str(mine.inner)
        assert is_listened_on(mine.host)
        assert not is_listened_on(mine.inner)
        assert agent.reservations.ports.free(Protocol.TCP) == 0
    async with host(**tls) as agent:
        [again] = agent.sessions.all()
        assert again.ports == session.ports
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert agent.nothing_is_held()
