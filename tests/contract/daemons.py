"""An agent's daemon over a fake engine, called over its unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from agent.app.daemon import Daemon
from agent.kernel.clock import SystemHostClock
from agent.settings.model import AgentConfig
from tests.support.agent.hosts import nobody_else
from tests.support.fakes import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

DEADLINE = 20.0


@asynccontextmanager
async def a_daemon(
    folder: Path, engine: FakeEngine, clock: SystemHostClock
) -> AsyncIterator[tuple[Daemon, Any]]:
    """Run a daemon that has reconciled, and give it with a client of its socket."""
    config = AgentConfig(
        state_dir=folder / "state",
        socket=folder / "agent.sock",
        public_address="192.0.2.1",
        metrics_listen="",
        cpu=8,
        ram=4096,
        stop_grace=0.05,
        firewall_bridges=(),
    )
    daemon = Daemon(config, engine, clock, nobody_else)
    work = asyncio.create_task(daemon.run())
    try:
        await daemon.serving.wait()
        async with grpc.aio.insecure_channel(f"unix:{config.socket}") as channel:
            stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
            while not (await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).reconciled:
                await asyncio.sleep(0)
            yield daemon, stub
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
