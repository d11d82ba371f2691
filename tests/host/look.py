"""Print as JSON what there is of an agent; runs inside a machine, with nothing but Python."""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

STATE = Path("/var/lib/tiltyard-agent")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def started(pid: str) -> int:
    """Return the start time of a living process in ticks."""
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[18]) if state not in "ZX" else 0


def processes() -> "list[list[int]]":
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found.append([int(path.name), started(path.name)])
        except OSError:  # it has ended meanwhile
            continue
    return found


sessions = run("tiltyard-agent", "sessions", "--all", "--json").splitlines()
names = run("docker", "ps", "--all", "--quiet", "--filter", "label=io.tiltyard.agent").split()
seen = {
    "containers": json.loads(run("docker", "inspect", *names)) if names else [],
    "files": {
        str(path.relative_to(STATE)): base64.b64encode(path.read_bytes()).decode()
        for path in (STATE / "claims", *STATE.glob("sessions/*/record.json"))
        if path.exists()
    },
    "prepared": [path.name for path in STATE.glob("prepared/*")],
    "sessions": [json.loads(line) for line in sessions],
    "status": json.loads(run("tiltyard-agent", "status", "--json")),
    "processes": processes(),
    "nat": run("iptables", "-w", "-t", "nat", "-S", "DOCKER"),
    "now": time.time(),
}
json.dump(seen, sys.stdout)
