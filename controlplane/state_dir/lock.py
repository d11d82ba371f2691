"""Locks on a state directory: one process serves, another reads or adds, or a restore is alone.

A process that holds one works as the user who owns the directory. The kernel releases the locks of
a process that ends; their files stay. Nothing waits for a lock. All of it blocks.
"""

import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controlplane.domain.errors import StoreError

RESTORE_READY = "restore.ready"
"""A folder that exists while a restored state is being put in place."""


@contextmanager
def serving(state_dir: Path) -> Iterator[None]:
    """Be the one that serves from a state directory, which is created where there is none.

    Raises:
        StoreError: Another process serves, or a restore is running or was interrupted.
    """
    with _locked(state_dir, "serve.lock", "a control plane serves from there, or `restore` runs"):
        _check_whole(state_dir)
        yield


@contextmanager
def using(state_dir: Path) -> Iterator[None]:
    """Read from and add to the database, also beside a process that serves.

    Raises:
        StoreError: Another process does, or a restore is running or was interrupted.
    """
    with _locked(state_dir, "state.lock", "`init`, `backup` or `restore` is running there"):
        _check_whole(state_dir)
        yield


@contextmanager
def replacing(state_dir: Path) -> Iterator[None]:
    """Use a state directory alone.

    Raises:
        StoreError: It is in use.
    """
    with (
        _locked(state_dir, "serve.lock", "a control plane serves from there"),
        _locked(state_dir, "state.lock", "`init`, `backup` or `restore` is running there"),
    ):
        yield


def _check_whole(state_dir: Path) -> None:
    if (state_dir / RESTORE_READY).exists():
        raise StoreError(
            f"cannot use {state_dir}: a restore was interrupted there: repeat it with --force"
        )


@contextmanager
def _locked(state_dir: Path, name: str, user: str) -> Iterator[None]:
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
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"cannot use {state_dir}: {user}") from None
        yield


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Run as the user who owns a folder, and in the user's groups, if this is root.

    So what `init` creates as root is owned by the user of the service, and no link leads where
    the user could not go. It holds for the whole process with all its threads.

    Raises:
        OSError: It cannot be read.
    """
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        name = pwd.getpwuid(owner.st_uid).pw_name
        os.setgroups(os.getgrouplist(name, owner.st_gid))
    except KeyError:  # a user of another machine, or of a container
        os.setgroups([owner.st_gid])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
