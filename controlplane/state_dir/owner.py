"""Root works in a state directory as the user whose it is.

So an operator may be root for `init` or `backup` beside a service of another user: what is made
there is that user's, and no link in there leads anywhere that the user could not go. All of it is
of the process as a whole: all its threads are that user meanwhile.
"""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Be the user whose folder it is, if this is root; also in the user's groups.

    Nothing changes where there is no such folder yet, and for a folder of root's.

    Raises:
        OSError: It cannot be looked at, or the user may not read this program, whose modules are
            loaded as they are needed.
    """
    try:
        owner = folder.stat()
    except FileNotFoundError:
        yield
        return
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(_groups_of(owner.st_uid, owner.st_gid))
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        _look_at_program()
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _look_at_program() -> None:
    try:
        Path(__file__).stat()
    except PermissionError as error:
        told = f"its user may not read {Path(__file__).parent}: use the program that is installed"
        raise PermissionError(error.errno, told) from error


def _groups_of(user: int, group: int) -> list[int]:
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # a user of another machine, or of a container
        return [group]
    return os.getgrouplist(name, group)
