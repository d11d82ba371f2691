"""Defaults that an operator's commands use without pydantic, which takes long to import."""

from pathlib import Path

API_LISTEN = "127.0.0.1:8080"
STATE_DIR = Path("/var/lib/tiltyard-controlplane")
