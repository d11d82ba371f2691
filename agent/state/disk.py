"""Failures of a disk, as errors of the agent."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from agent.domain.errors import DiskFullError


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into DiskFullError."""
    try:
        yield
    except OSError as error:
        raise DiskFullError(str(path), error.strerror or str(error)) from error
