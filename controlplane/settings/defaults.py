"""Defaults for CLI commands, without importing pydantic, which is slow."""

from pathlib import Path

API_LISTEN = "127.0.0.1:8080"
STATE_DIR = Path("/var/lib/tiltyard-controlplane")
