"""Where an agent and its settings are found by default."""

from pathlib import Path

AGENT_SOCKET = Path("/run/tiltyard/agent.sock")
DEFAULT_CONFIG = Path("/etc/tiltyard/agent.toml")
