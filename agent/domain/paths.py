"""Where an agent is found by default."""

from pathlib import Path

AGENT_SOCKET = Path("/run/tiltyard/agent.sock")
