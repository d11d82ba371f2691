"""Root works in a state directory as the user who owns it.

So an operator may run `init` or `backup` as root beside a service of another user: what they
create there is owned by that user, and a link there leads nowhere that the user could not go. This
holds for the whole process, with all its threads.
"""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Run as the user who owns a folder, and in the user's groups, if this is root.

    Nothing changes where there is no such folder yet, and for a folder that root owns.

    Raises:
        OSError: It cannot be read, or the user may not read this program, whose modules are loaded
            as they are needed.
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
        _check_program()
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _check_program() -> None:
    try:
        Path(__file__).stat()
    except PermissionError as error:
        cause = (
            f"its owner may not read {Path(__file__).parent}: use the program that is installed"
        )
        raise PermissionError(error.errno, cause) from error


def _groups_of(user: int, group: int) -> list[int]:
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:  # a user of another machine, or of a container
        return [group]
    return os.getgrouplist(name, group)
