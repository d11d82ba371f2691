"""Failures of a disk, as errors of the agent."""

import contextlib
from pathlib import Path

from agent.domain.errors import DiskFullError


class disk(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Turns the operating system's refusals into DiskFullError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise DiskFullError(str(self._path), error.strerror or str(error)) from error
