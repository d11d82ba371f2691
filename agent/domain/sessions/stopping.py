"""A stop: which process of a container gets the signal when. Pure.

A game may be behind a start script that ends by the signal, passes it on, or keeps it until the
game has ended. So the signal goes out in waves:

1. to the program that the container's init runs, the script or the game itself;
2. once every process of a wave has ended, to those that are left;
3. after a third of the grace period, if the program has not ended, to the others that were there
   when the stop began.

An image's own init is the program, and the only one that gets it: it stops what it supervises in
an order of its own, and its signal would end programs that do not know it.

No process gets it twice from the agent, and none that a process starts while it shuts down: that
may be the one that saves.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from signal import Signals

from agent.domain.sessions.session import Process

LATE_SHARE = 1 / 3  # Of the grace period, after which all processes get the signal
ALL_SIGNALS = 2**64 - 1  # As bits

_LAST_SIGNAL = 64
_RELATIVE = re.compile(r"(SIGRTMIN|SIGRTMAX)([+-]\d{1,2})")
_NUMBER = re.compile(r"[1-9]\d?")


@dataclass(frozen=True, slots=True)
class Member:
    """A live process of a container.

    `parent` is a process id, `name` the kernel's, of up to 15 bytes. The others are sets of
    signals as bits, the first for signal 1: those that it handles, those that it ignores, those
    that all its threads block, and those that were sent to it but not delivered.
    """

    process: Process
    parent: int
    name: str
    caught: int = 0
    ignored: int = 0
    blocked: int = 0
    pending: int = 0

    def catches(self, number: int) -> bool:
        """Return whether it has a handler for a signal."""
        return bool(self.caught >> (number - 1) & 1)

    def listens_for(self, number: int) -> bool:
        """Return whether it handles a signal, or blocks it as before it reads it by a call."""
        return self.catches(number) or bool(self.blocked & ~self.ignored & 1 << (number - 1))

    def ignores(self, number: int) -> bool:
        """Return whether it ignores a signal."""
        return bool(self.ignored >> (number - 1) & 1)

    def waits_for(self, number: int) -> bool:
        """Return whether a signal was sent to it but not delivered, since it is blocked."""
        return bool(self.pending >> (number - 1) & 1)


def next_wave(
    members: Sequence[Member],
    *,
    at_first: Sequence[Member],
    signalled: Collection[Process],
    is_late: bool,
) -> tuple[Process, ...]:
    """Return the processes that get the signal now.

    `members` live now, `at_first` did when the stop began, without those that an image's own init
    signals itself. `signalled` were sent the signal. `is_late`: LATE_SHARE of the grace period
    has passed.
    """
    live = {member.process for member in members}
    if not signalled:
        return () if not members else (program_of(members).process,)
    if live.isdisjoint(signalled):
        return tuple(member.process for member in members)
    if is_late:
        left = (member.process for member in at_first)
        return tuple(process for process in left if process in live.difference(signalled))
    return ()


def program_of(members: Sequence[Member]) -> Member:
    """Return the program of a container: the oldest of its processes whose parent is none of them.

    Orphans have the container's init as parent, too, but are younger.
    """
    ids = {member.process.pid for member in members}
    roots = [member for member in members if member.parent not in ids]
    return min(roots or members, key=lambda root: (root.process.start_ticks, root.process.pid))


def asks_to_end(name: str) -> bool:
    """Return whether a signal with this name can be handled by the program that gets it."""
    return signal_number(name) not in {None, Signals.SIGKILL, Signals.SIGSTOP}


def signal_number(name: str) -> int | None:
    """Return the number of a signal; None if there is no such signal.

    `name` is as in an image's STOPSIGNAL: a number, or a name with or without SIG, such as
    `SIGRTMIN+3`.
    """
    text = name.strip().upper()
    if _NUMBER.fullmatch(text):
        number = int(text)
        return number if number <= _LAST_SIGNAL else None
    text = text if text.startswith("SIG") else f"SIG{text}"
    if text in Signals.__members__:
        return Signals[text]
    relative = _RELATIVE.fullmatch(text)
    if relative is None:
        return None
    number = Signals[relative[1]] + int(relative[2])
    return number if Signals.SIGRTMIN <= number <= Signals.SIGRTMAX else None
