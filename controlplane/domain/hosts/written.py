"""The position up to which the reports of a host are in the rows of its sessions."""

from typing import NamedTuple


class Written(NamedTuple):
    """The sequence up to which the reports of an incarnation of an agent are in rows.

    A live session of the incarnation whose report has a sequence up to `sequence` has not changed
    since its row was written.
    """

    incarnation: str = ""
    sequence: int = 0
