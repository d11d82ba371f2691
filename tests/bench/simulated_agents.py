"""Simulated hosts that only report: gRPC servers on unix sockets, in a few processes.

Each sends heartbeats and the same number of running sessions. The control plane adopts these, as
after the loss of its database, since their tickets have its key. Starts are not supported.
"""

import asyncio
import ipaddress
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from agent.rpc.service import HEARTBEAT_SECONDS
from controlplane.pki.tickets import TicketKey
from tests.support.harness import AgentSpec, Process
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import identity_to_proto
from tiltyard.contract import Identity
from tiltyard.runtime.clock import SystemClock

ACCOUNT = "default"
IMAGE = f"registry.example.net/arena@sha256:{'0' * 64}"
REGIONS = tuple(f"region-{number:02}" for number in range(20))
"""Hosts are assigned to regions round robin."""
GROUPS = 1000
AGENTS_IN_A_PROCESS = 250
_SERVICE = "tiltyard.agent.v1.AgentService"
_SERVING = "all are listening"
_INCARNATIONS = uuid.UUID("8a1f2c52-5b0e-4d41-9f53-0f6a1c1de3b7")


def specs(folder: Path, agents: int) -> list[AgentSpec]:
    """Return the control plane's settings of these agents."""
    return [
        AgentSpec(_name(number), f"unix:{folder}/{_name(number)}.sock", _region(number))
        for number in range(agents)
    ]


@contextmanager
def running(folder: Path, key: Path, agents: int, sessions: int) -> Iterator[list[Process]]:
    """Run these agents, each with `sessions` sessions whose tickets have this key."""
    processes = -(-agents // AGENTS_IN_A_PROCESS)
    with ExitStack() as stack:
        made = []
        for part in range(processes):
            numbers = range(part * agents // processes, (part + 1) * agents // processes)
            process = Process(f"simulated agents {numbers}", folder / f"part-{part}.log")
            command = [sys.executable, "-m", __name__, str(folder), str(key)]
            command += map(str, (numbers.start, numbers.stop, sessions))
            stack.callback(process.stop)
            process.launch(command, partial(process.has_logged, _SERVING))
            made.append(process)
        yield made


def session_id(agent: int, number: int) -> str:
    """Return the id of a host's session."""
    return f"match-{agent:05}-{number:05}"


def group(agent: int, number: int) -> int:
    """Return the group, below GROUPS, of sessions with the same application, tag and label."""
    return (agent * 7919 + number) % GROUPS


class _Agent:
    """Serves the prepared messages of one host."""

    def __init__(self, number: int, sessions: int, key: TicketKey) -> None:
        name = _name(number)
        self._incarnation = str(uuid.uuid5(_INCARNATIONS, name))
        self._sequence = sessions
        reported = pb.SessionBatch(
            sessions=[_session(number, each, key) for each in range(sessions)]
        )
        self._snapshot = [
            self._message(snapshot_begin=pb.SnapshotBegin()),
            self._message(images=pb.ImageBatch(images=[IMAGE], first=True, last=True)),
            self._message(host=_host(number, reported.sessions)),
            self._message(sessions=reported),
            self._message(snapshot_end=pb.SnapshotEnd(reconciled=True)),
        ]
        self._beat = self._message(heartbeat=pb.Heartbeat())

    def _message(self, **event: Any) -> bytes:
        message = pb.WatchResponse(incarnation=self._incarnation, sequence=self._sequence, **event)
        return message.SerializeToString()

    async def watch(self, _request: bytes, _context: object) -> AsyncIterator[bytes]:
        """Stream a snapshot, then heartbeats."""
        for message in self._snapshot:
            yield message
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            yield self._beat

    async def serve(self, address: str) -> grpc.aio.Server:
        """Listen at the address."""
        server = grpc.aio.server()
        watch: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(
            self.watch
        )
        handler = grpc.method_handlers_generic_handler(_SERVICE, {"Watch": watch})
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(address)
        await server.start()
        return server


def _name(number: int) -> str:
    return f"host-{number:05}"


def _region(number: int) -> str:
    return REGIONS[number % len(REGIONS)]


def _address(number: int) -> str:
    """Return a loopback address, which can be pinged."""
    return str(ipaddress.IPv4Address("127.1.0.0") + number)


def _host(number: int, sessions: Sequence[pb.Session]) -> pb.Host:
    reserved = pb.Resources(
        nano_cpus=sum(session.reservation.nano_cpus for session in sessions),
        memory_bytes=sum(session.reservation.memory_bytes for session in sessions),
    )
    return pb.Host(
        format=1,
        agent_id=str(uuid.uuid5(_INCARNATIONS, f"agent {number}")),
        version="1",
        public_address=_address(number),
        latency_addresses=[_address(number)],
        capacity=pb.Resources(nano_cpus=64 * 10**9, memory_bytes=256 * 2**30),
        reserved=reserved,
        free_sessions=1000 - len(sessions),
        port_range_first=20000,
        port_range_last=29999,
        free_tcp_ports=10000 - len(sessions),
        free_udp_ports=10000 - len(sessions),
        image_count=1,
        engine_available=True,
        engine_version="28.5.2",
        runc_version="1.3.3",
        kernel_version="6.12.0",
        start_slots=8,
    )


def _session(agent: int, number: int, key: TicketKey) -> pb.Session:
    name, address, port = session_id(agent, number), _address(agent), 20000 + number
    internal_id = str(uuid.uuid5(_INCARNATIONS, name))
    lobby = f"{group(agent, number)}"
    labels = {"mode": "ranked", "lobby": lobby}
    asked = (f"arena-{lobby}", f"v{lobby}", _region(agent), labels)
    identity = Identity(ACCOUNT, name, *asked)
    ticket = key.ticket(_name(agent), internal_id, identity)
    names = {"SESSION_ID": name, "CONTAINER": name, "HOST": address, "IP": address}
    names |= {"PORT_UDP_7777": str(port), "PORT_TCP_7778": str(port)}
    session = pb.Session(
        format=1,
        internal_id=internal_id,
        identity=identity_to_proto(replace(identity, ticket=ticket)),
        image=IMAGE,
        state=pb.STATE_RUNNING,
        ports=[
            pb.Port(container_port=7777, protocol=pb.PROTOCOL_UDP, host_port=port),
            pb.Port(container_port=7778, protocol=pb.PROTOCOL_TCP, host_port=port),
        ],
        reservation=pb.Resources(nano_cpus=500_000_000, memory_bytes=512 * 2**20),
        injected_env={f"TILTYARD_{each}": value for each, value in names.items()},
        sequence=number + 1,
        host=address,
    )
    session.create_time.FromSeconds(int(time.time()) - 600)
    session.ready_time.FromSeconds(int(time.time()) - 599)
    return session


async def _serve(folder: Path, key_path: Path, numbers: range, sessions: int) -> None:
    key = TicketKey(key_path, SystemClock())
    await key.open()
    addresses = {number: f"unix:{folder}/{_name(number)}.sock" for number in numbers}
    servers = [
        await _Agent(number, sessions, key).serve(address) for number, address in addresses.items()
    ]
    sys.stdout.write(f"{_SERVING}\n")
    sys.stdout.flush()
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM: folder, ticket key, first agent, the one after the last, sessions."""
    folder, key, first, end, sessions = arguments
    asyncio.run(_serve(Path(folder), Path(key), range(int(first), int(end)), int(sessions)))


if __name__ == "__main__":
    main(sys.argv[1:])
