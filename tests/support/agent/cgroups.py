"""Control groups in a folder, in the layout of cgroup v1."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.domain.sessions.session import Process
from agent.kernel.usage import Counters, counters_of


@dataclass(frozen=True)
class FakeCgroups:
    """The groups of fake processes, below a folder that stands for /sys/fs/cgroup."""

    root: Path

    def find(self, process: Process) -> Counters:
        """Return the counters of a process, which are missing before the first `use`."""
        name = process.pid
        groups = "".join(
            f"{number}:{controller}:/docker/{name}\n"
            for number, controller in enumerate(("pids", "cpuacct", "memory"), start=2)
        )
        return counters_of(groups, self.root)

    def use(self, process: Process | None, *, cpu_seconds: float, memory_bytes: int) -> None:
        """Set the total usage of a process."""
        self._write(process, "cpuacct", "cpuacct.usage", f"{round(cpu_seconds * 10**9)}\n")
        self._write(process, "memory", "memory.max_usage_in_bytes", f"{memory_bytes}\n")

    def kill_out_of_memory(self, process: Process | None) -> None:
        """Count an OOM kill in the group of a process."""
        text = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"
        self._write(process, "memory", "memory.oom_control", text)

    def refuse_process(self, process: Process | None) -> None:
        """Count a process beyond the limit in the group of a process."""
        self._write(process, "pids", "pids.events", "max 1\n")

    def remove(self, process: Process | None) -> None:
        """Remove the groups of a process, as the engine does after its end."""
        assert process is not None
        for controller in ("cpuacct", "memory"):
            shutil.rmtree(self.root / controller / "docker" / str(process.pid))

    def _write(self, process: Process | None, controller: str, file: str, text: str) -> None:
        assert process is not None
        folder = self.root / controller / "docker" / str(process.pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
