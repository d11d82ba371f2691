"""Sample sessions and specs for tests of the agent."""

import dataclasses
import uuid
from typing import Any

from agent.domain.containers.engine import ContainerSpec
from agent.domain.sessions.session import Session
from tiltyard.contract import Identity, NetworkMode, PortRequest, Protocol, Resources, SessionSpec

MEBIBYTE = 1024**2
IMAGE = "127.0.0.1:5000/game@sha256:" + "a" * 64


def an_id() -> str:
    return str(uuid.uuid4())


def a_spec(**changes: Any) -> SessionSpec:
    """A small session with one UDP and one TCP port."""
    spec = SessionSpec(
        identity=Identity(
            account="acme",
            session_id="match/1 ü",
            application="game",
            tag="v1",
            location="local",
            labels={"mode": "duel"},
            external_id="x-1",
            ticket="00ff",
        ),
        image=IMAGE,
        network_mode=NetworkMode.BRIDGE,
        reservation=Resources(nano_cpus=10**8, memory_bytes=32 * MEBIBYTE),
        limits=Resources(nano_cpus=10**9, memory_bytes=64 * MEBIBYTE),
        ports=(PortRequest(7777, Protocol.UDP), PortRequest(7778, Protocol.TCP)),
    )
    return dataclasses.replace(spec, **changes)


def a_session(**changes: Any) -> Session:
    session = Session(internal_id=an_id(), spec=a_spec(), create_time=1_700_000_000.0)
    return dataclasses.replace(session, **changes)


def a_container_spec(**changes: Any) -> ContainerSpec:
    """A container without ports and limits."""
    spec = ContainerSpec(
        internal_id="x",
        agent_id="agent-1",
        image=IMAGE,
        init="/nonexistent/init/" + "0" * 64,
        network_mode=NetworkMode.BRIDGE,
        ports=(),
        bind_address="127.0.0.1",
        reservation=Resources(),
        limits=Resources(),
        public_dir="/nonexistent",
        record="{}",
        pids=512,
        shm_bytes=2**26,
    )
    return dataclasses.replace(spec, **changes)
