"""The processes below the inits of a fake engine's containers."""

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.domain.containers.engine import InitState
from agent.domain.host.kernel_limits import ContainerLimits
from agent.domain.sessions.session import Port, Process
from agent.domain.sessions.stopping import ALL_SIGNALS, Member, signal_number
from agent.init.messages import WAIT_FOR_ALL
from agent.network.bindings import FoundSocket, compare_ports
from tests.support.fake_calls import FakeCalls
from tiltyard.contract import NetworkMode
from tiltyard.ends import Limit, PortBindings

if TYPE_CHECKING:
    from tests.support.fake_container import FakeContainer

ENDS_BY = frozenset({"SIGTERM", "SIGKILL"})


@dataclass(eq=False)
class FakeProcess:
    """A process of a container, but for our init. `ends_by`: signals; `got`: those sent to it."""

    member: Member
    ends_by: frozenset[str] = ENDS_BY
    got: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class FakeProcesses(FakeCalls):
    """The part of a fake engine that the kernel plays: it needs no engine that answers.

    `changed` has the limits that differ from what was set, by the first process of a container.
    `ignores_sigterm` has names or ids of containers whose program ignores SIGTERM, `stop_signals`
    the signals that images declare.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ignores_sigterm: set[str] = set()
        self.stop_signals: dict[str, str] = {}
        self.changed: dict[Process, tuple[str, ...]] = {}
        self.limits_set: list[ContainerLimits] = []
        self._numbers = itertools.count(1)

    @property
    @abstractmethod
    def all(self) -> "list[FakeContainer]": ...

    @abstractmethod
    def find(self, container: str) -> "FakeContainer": ...

    @abstractmethod
    def end(
        self, container: str, exit_code: int, *, oom: bool = False, reports: bool = True
    ) -> None: ...

    @abstractmethod
    def _signal(self, held: "FakeContainer", signal: str) -> None: ...

    async def changed_limits(
        self, wanted: Mapping[Process, ContainerLimits]
    ) -> Mapping[Process, tuple[str, ...]]:
        return {each: names for each, names in self.changed.items() if each in wanted}

    async def set_limits(self, container: str, wanted: ContainerLimits) -> None:
        async with self._call("update", container):
            process = self.find(container).process
            if process is not None:
                self.changed.pop(process, None)
            self.limits_set.append(wanted)

    async def has_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        return any(held.process == process and held.bound for held in self.all)

    async def bindings(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> PortBindings:
        in_host_network = network_mode is NetworkMode.HOST
        found: list[FoundSocket] = []
        if await self.has_bound(process, network_mode, ports):
            for port in ports:
                number = port.own if in_host_network else port.container
                found.append(FoundSocket(port.protocol, number, is_reachable=True, is_local=True))
        return compare_ports(ports, found, in_host_network=in_host_network)

    # Controlled by tests.

    def add_process(
        self,
        container: str,
        name: str,
        *,
        parent: Process | None = None,
        ends_by: frozenset[str] = ENDS_BY,
    ) -> FakeProcess:
        """Start a process below the init of a container; the first one is its program."""
        held = self.find(container)
        assert held.process is not None, f"{container} does not run"
        number = next(self._numbers)
        process = Process(pid=500_000 + number, start_ticks=number)
        member = Member(process, (parent or held.process).pid, name, caught=ALL_SIGNALS)
        held.tree.append(FakeProcess(member, ends_by))
        return held.tree[-1]

    def program_of(self, container: str) -> FakeProcess:
        """The program that a container runs, below its init or in its place."""
        held = self.find(container)
        return held.own_init or held.tree[0]

    def end_process(self, container: str, ended: FakeProcess, exit_code: int) -> None:
        """End one process below an init, and the container with its program.

        Unless the init was asked to outlive the program until all have ended.
        """
        held = self.find(container)
        if held.program_code is None and ended is held.tree[0]:
            held.program_code = exit_code
        held.tree.remove(ended)
        ended.ended.set()
        if held.program_code is not None and not (held.waits_for_all and held.tree):
            self.end(held.id, held.program_code)

    def meet_limits(self, container: str, *limits: Limit) -> None:
        """Let the init of a container report these limits at the end of the run."""
        self.find(container).reported_limits = limits

    # Called by the agent.

    async def processes(self, first: Process) -> Sequence[Member]:
        return [member for held in self.all if held.process == first for member in held.members]

    async def signal_process(self, process: Process, signal: str) -> None:
        for held in self.all:
            if held.process == process and signal == str(WAIT_FOR_ALL):
                held.waits_for_all = held.init is InitState.RUNNING
            elif held.process == process and held.own_init is not None:
                held.own_init.got.append(signal)
                if signal in held.own_init.ends_by:
                    self.end(held.id, 128 + (signal_number(signal) or 0))
            elif held.process == process:
                self._signal(held, signal)
            for below in list(held.tree):
                if below.member.process == process:
                    self._signal_below(held, below, signal)

    def _signal_below(self, held: "FakeContainer", sent_to: FakeProcess, signal: str) -> None:
        sent_to.got.append(signal)
        ignores = signal == "SIGTERM" and self.ignores_sigterm & {held.id, held.name}
        if signal in sent_to.ends_by and not ignores:
            self.end_process(held.id, sent_to, 128 + (signal_number(signal) or 0))

    async def _end_below(self, process: Process) -> None:
        """Wait until a process below an init has ended; no-op for any other."""
        for held in self.all:
            for below in held.tree:
                if below.member.process == process:
                    await below.ended.wait()
                    return
