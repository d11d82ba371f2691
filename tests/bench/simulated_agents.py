"""Fake agents that only report, in a few processes.

Each sends heartbeats and the same number of running sessions. The control plane adopts these, as
after the loss of its database, since their tickets have its key.
"""

import asyncio
import ipaddress
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.rpc.service import HEARTBEAT_SECONDS
from controlplane.pki.tickets import TicketKey
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.harness import AgentSpec, Process
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import identity_to_proto, resources_to_proto
from tiltyard.contract import Identity, Resources
from tiltyard.runtime.clock import SystemClock

ACCOUNT = "default"
RESERVATION = Resources(500_000_000, 512 * 2**20)
IMAGE = f"registry.example.net/arena@sha256:{'0' * 64}"
REGIONS = tuple(f"region-{number:02}" for number in range(20))
"""Hosts are assigned to regions round robin."""
GROUPS = 1000
AGENTS_IN_A_PROCESS = 250
_SERVING = "all are listening"
_INCARNATIONS = uuid.UUID("8a1f2c52-5b0e-4d41-9f53-0f6a1c1de3b7")


def specs(folder: Path, agents: int) -> list[AgentSpec]:
    """Return the control plane's settings of these agents."""
    return [
        AgentSpec(_name(number), f"unix:{folder}/{_name(number)}.sock", _region(number))
        for number in range(agents)
    ]


@contextmanager
def running(folder: Path, key: Path, agents: int, sessions: int) -> Iterator[None]:
    """Run these agents, each with `sessions` sessions whose tickets have this key."""
    processes = -(-agents // AGENTS_IN_A_PROCESS)
    with ExitStack() as stack:
        for part in range(processes):
            numbers = range(part * agents // processes, (part + 1) * agents // processes)
            process = Process(f"simulated agents {numbers}", folder / f"part-{part}.log")
            command = [sys.executable, "-m", __name__, str(folder), str(key)]
            command += map(str, (numbers.start, numbers.stop, sessions))
            stack.callback(process.stop)
            process.launch(command, partial(process.has_logged, _SERVING))
        yield


def session_id(agent: int, number: int) -> str:
    """Return the id of a host's session."""
    return f"match-{agent:05}-{number:05}"


def group(agent: int, number: int) -> int:
    """Return the group, below GROUPS, of sessions with the same application, tag and label."""
    return (agent * 7919 + number) % GROUPS


class _Agent(FakeAgent):
    """Reports its running sessions."""

    def __init__(self, folder: Path, number: int, sessions: int, key: TicketKey) -> None:
        super().__init__(folder, _name(number))
        self.host.public_address = _address(number)
        self.host.latency_addresses[:] = [_address(number)]
        self.images.append(IMAGE)
        self.sequence = sessions
        for each in range(sessions):
            session = _session(number, each, key)
            self.sessions[session.internal_id] = session
        self.beat = HEARTBEAT_SECONDS
        self._prepared = list(map(super()._stamped, super()._snapshot()))

    def _snapshot(self, acked: int = 0) -> list[pb.WatchResponse]:
        return self._prepared

    def _stamped(self, response: pb.WatchResponse) -> pb.WatchResponse:
        return response if response.incarnation else super()._stamped(response)


def _name(number: int) -> str:
    return f"host-{number:05}"


def _region(number: int) -> str:
    return REGIONS[number % len(REGIONS)]


def _address(number: int) -> str:
    """Return a loopback address, which can be pinged."""
    return str(ipaddress.IPv4Address("127.1.0.0") + number)


def _session(agent: int, number: int, key: TicketKey) -> pb.Session:
    name = session_id(agent, number)
    address = _address(agent)
    port = 20000 + number
    internal_id = str(uuid.uuid5(_INCARNATIONS, name))
    lobby = f"{group(agent, number)}"
    asked = (f"arena-{lobby}", f"v{lobby}", _region(agent), {"mode": "ranked", "lobby": lobby})
    identity = Identity(ACCOUNT, name, *asked)
    ticket = key.ticket(_name(agent), internal_id, identity, RESERVATION)
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
        reservation=resources_to_proto(RESERVATION),
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
    agents = [_Agent(folder, number, sessions, key) for number in numbers]
    for agent in agents:
        await agent.start()
    sys.stdout.write(f"{_SERVING}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM: folder, ticket key, first agent, the one after the last, sessions."""
    folder, key, first, end, sessions = arguments
    asyncio.run(_serve(Path(folder), Path(key), range(int(first), int(end)), int(sessions)))


if __name__ == "__main__":
    main(sys.argv[1:])
