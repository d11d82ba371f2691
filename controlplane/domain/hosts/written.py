"""How far the reports of a host are in the rows of its sessions."""

from typing import NamedTuple


class Written(NamedTuple):
    """How far the reports of one incarnation of an agent are in the rows of its sessions.

    A live session of the incarnation whose row has a report with a `sequence` up to this one
    has not changed since that report.
    """

    incarnation: str = ""
    sequence: int = 0
