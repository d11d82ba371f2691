"""Locks on a state directory: one server plus one command, or one restore alone.

The holder works as the owner of the directory. The kernel releases the locks of a process that
ends; the lock files remain. A lock in use fails at once. All functions block.
"""

import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from controlplane.domain.errors import StoreError

RESTORE_READY = "restore.ready"  # Folder that exists while a restored state is moved in place


def serving(state_dir: Path) -> AbstractContextManager[None]:
    """Lock a state directory for the server. Creates the directory.

    Raises:
        StoreError: Another process serves, or a restore is running or was interrupted.
    """
    return _locked(state_dir, "serve.lock", "a control plane or `restore` is running there")


def using(state_dir: Path) -> AbstractContextManager[None]:
    """Lock a state directory for a command that reads or adds to it, also beside a server.

    Raises:
        StoreError: Another command or a restore is running, or a restore was interrupted.
    """
    return _locked(state_dir, "state.lock", "`init`, `backup` or `restore` is running there")


@contextmanager
def replacing(state_dir: Path) -> Iterator[None]:
    """Lock a state directory exclusively.

    Raises:
        StoreError: The directory is in use.
    """
    user = "`init`, `backup` or `restore` is running there"
    with (
        _locked(state_dir, "serve.lock", "a control plane is running there", restoring=True),
        _locked(state_dir, "state.lock", user, restoring=True),
    ):
        yield


@contextmanager
def _locked(state_dir: Path, name: str, user: str, *, restoring: bool = False) -> Iterator[None]:
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
        if not restoring and (state_dir / RESTORE_READY).exists():
            raise StoreError(
                f"cannot use {state_dir}: a restore was interrupted there: repeat it with --force"
            )
        yield


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Switch root to the owner of a folder, with the owner's groups, in the whole process.

    The service's user then owns what `init` creates as root, and symbolic links give no access
    beyond that user's.

    Raises:
        OSError: The folder cannot be read.
    """
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups = os.getgroups()
    group = os.getegid()
    try:
        name = pwd.getpwuid(owner.st_uid).pw_name
        os.setgroups(os.getgrouplist(name, owner.st_gid))
    except KeyError:  # a user of another machine or a container
        os.setgroups([owner.st_gid])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
