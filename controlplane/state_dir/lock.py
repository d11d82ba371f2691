"""Locks on a state directory: one process serves, others read and add, or a restore has it alone.

A process that holds one works as the user who owns the directory. The kernel releases the locks of
a process that ends; their files stay. Nothing waits for a lock. All of it blocks.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controlplane.domain.errors import StoreError
from controlplane.state_dir.owner import as_owner_of

_SERVING = "serve.lock"
_USING = "state.lock"
_BACKING_UP = "backup.lock"

RESTORE_READY = "restore.ready"
"""A folder that exists while a restored state is being put in place."""

_IS_SERVED = "a control plane serves from there"
_IS_USED = "`init` or `backup` is running there"
_IS_REPLACED = "`restore` is running there"


@contextmanager
def serving(state_dir: Path) -> Iterator[None]:
    """Be the one that serves from a state directory, which is created where there is none.

    Raises:
        StoreError: Another process serves, or a restore is running.
    """
    with _locked(state_dir, _SERVING, fcntl.LOCK_EX, f"{_IS_SERVED}, or {_IS_REPLACED}"):
        yield


@contextmanager
def using(state_dir: Path) -> Iterator[None]:
    """Read from and add to the database, beside others that do and one that serves.

    Raises:
        StoreError: A restore is running, or was interrupted.
    """
    with _locked(state_dir, _USING, fcntl.LOCK_SH, _IS_REPLACED):
        if (state_dir / RESTORE_READY).exists():
            raise StoreError(
                f"cannot use {state_dir}: a restore was interrupted there: `serve` finishes it,"
                " and so does another `restore`"
            )
        yield


@contextmanager
def backing_up(state_dir: Path) -> Iterator[None]:
    """Use the database as `using` does, one backup at a time.

    Raises:
        StoreError: A restore or another backup is running, or a restore was interrupted.
    """
    with (
        using(state_dir),
        _locked(state_dir, _BACKING_UP, fcntl.LOCK_EX, "another `backup` is running there"),
    ):
        yield


@contextmanager
def replacing(state_dir: Path) -> Iterator[None]:
    """Use a state directory alone.

    Raises:
        StoreError: It is in use.
    """
    with ExitStack() as stack:
        for name, user in ((_SERVING, _IS_SERVED), (_USING, _IS_USED)):
            stack.enter_context(_locked(state_dir, name, fcntl.LOCK_EX, user))
        yield


@contextmanager
def _locked(state_dir: Path, name: str, kind: int, user: str) -> Iterator[None]:
    path = state_dir / name
    with ExitStack() as stack:
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(as_owner_of(state_dir))
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(path, flags, 0o600)
            stack.callback(os.close, handle)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"cannot use {state_dir}: {user}") from None
        yield
