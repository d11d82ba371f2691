"""Default paths of the agent."""

from pathlib import Path

AGENT_SOCKET = Path("/run/tiltyard/agent.sock")
DEFAULT_CONFIG = Path("/etc/tiltyard/agent.toml")
