"""Who may use a state directory at one time: one that serves, any that add to it, or a restore.

Whoever does, works there as the user whose it is. The locks go with the process that holds them,
however it ends; their files stay. All of it blocks, but nobody is waited for.
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

_IS_SERVED = "a control plane serves from there"
_IS_USED = "`init` or `backup` is at work there"
_IS_REPLACED = "`restore` is at work there"


@contextmanager
def serving(state_dir: Path) -> Iterator[None]:
    """Be the one that serves from a state directory, which is made where there is none.

    Raises:
        StoreError: Another does, or a restore is at work.
    """
    with _locked(state_dir, _SERVING, fcntl.LOCK_EX, f"{_IS_SERVED}, or {_IS_REPLACED}"):
        yield


@contextmanager
def using(state_dir: Path) -> Iterator[None]:
    """Read from and add to the database, beside others that do and one that serves.

    Raises:
        StoreError: A restore is at work.
    """
    with _locked(state_dir, _USING, fcntl.LOCK_SH, _IS_REPLACED):
        yield


@contextmanager
def replacing(state_dir: Path) -> Iterator[None]:
    """Have a state directory for oneself.

    Raises:
        StoreError: Somebody uses it.
    """
    with ExitStack() as stack:
        for name, told in ((_SERVING, _IS_SERVED), (_USING, _IS_USED)):
            stack.enter_context(_locked(state_dir, name, fcntl.LOCK_EX, told))
        yield


@contextmanager
def _locked(state_dir: Path, name: str, kind: int, told: str) -> Iterator[None]:
    path = state_dir / name
    with ExitStack() as stack:
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(as_owner_of(state_dir))
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(path, flags, 0o600)
            stack.callback(os.close, handle)
        except OSError as error:
            raise StoreError(f"cannot open {path}: because {error.strerror}") from error
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"cannot use {state_dir}: because {told}") from None
        yield
