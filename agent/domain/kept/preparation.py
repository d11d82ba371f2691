"""Plan of the prepared containers that a host keeps. Pure.

    wanted          one of each shape that is ordered or was started within the last hour; one more
                    with each start that found none; every 10 minutes less by half of those that
                    were never used meanwhile, at least one remains
    one after the   each shape gets its first before any gets its second, and so on; those that
    other           were started last come first
    no thrashing    what is kept of a shape that was started within the last minute is displaced
                    by a shape that still has fewer alone
    shares          an account holds at most half of what the other accounts leave free

The plan depends on which containers are kept only where it spares work: carried out and made
again, it changes nothing.
"""

import enum
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tiltyard.contract import SessionSpec
from tiltyard.runtime.fair_share import exceeds_share

MOST_CONTAINERS = 1000
"""Sessions and prepared containers of a host: an engine's bridge has 1,023 ports."""
FORGOTTEN_SECONDS = 3600.0  # A shape that was not started for so long is no longer kept
REVIEW_SECONDS = 600.0  # Between two reductions of what a shape wants
STEADY_SECONDS = 60.0  # After its last start a shape is not displaced


_LARGEST_DEFAULT = 16
_GIBI = 2**30


def default_limit(memory_bytes: int) -> int:
    """Return the default number of prepared containers of a host: one for each GiB of memory."""
    return min(_LARGEST_DEFAULT, memory_bytes // _GIBI)


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand for prepared containers of one shape; times are in monotonic seconds.

    `ordered`: the control plane asks for one. `last_start` is None before the first start.
    `unused` is the lowest number that waited since the last review.
    """

    shape: SessionSpec
    reviewed: float
    ordered: bool = False
    last_start: float | None = None
    wanted: int = 1
    unused: int = 0

    @property
    def account(self) -> str:
        """The account whose sessions can use the containers."""
        return self.shape.identity.account

    def is_current(self, now: float) -> bool:
        """Return whether one is still wanted."""
        return self.ordered or self._started_within(FORGOTTEN_SECONDS, now)

    def is_steady(self, now: float) -> bool:
        """Return whether the containers of this shape stay, since a start used it recently."""
        return self._started_within(STEADY_SECONDS, now)

    def after_start(self, now: float, *, waiting: int) -> "Demand":
        """The demand after a start that took one and left `waiting`."""
        return replace(self, last_start=now, unused=min(self.unused, waiting))

    def after_miss(self, now: float, *, most: int) -> "Demand":
        """The demand after a start that found none; at most `most` are wanted."""
        wanted = max(1, min(self.wanted + 1, most))
        return replace(self, last_start=now, unused=0, wanted=wanted)

    def at_review(self, now: float, *, waiting: int) -> "Demand":
        """The demand after a review, if one is due while `waiting` are unused."""
        if now - self.reviewed < REVIEW_SECONDS:
            return self
        unused = min(self.unused, waiting)
        wanted = max(1, self.wanted - -(-unused // 2))
        return replace(self, reviewed=now, wanted=wanted, unused=min(waiting, wanted))

    def _started_within(self, seconds: float, now: float) -> bool:
        return self.last_start is not None and now - self.last_start < seconds


class Discard(enum.Enum):
    """The reason for which a prepared container is removed without a session."""

    UNNEEDED = "unneeded"  # The plan wants fewer of its shape
    OUTDATED = "outdated"  # A container of its shape would be created in another way now
    ENDED = "ended"  # It does not wait any more: another program or a reboot has ended it
    UNUSABLE = "unusable"  # A start could not use it
    FAILED = "failed"  # Its preparation failed
    IMAGE = "image"  # Its image is removed
    PORTS = "ports"  # A session needs its ports
    DRAIN = "drain"  # The host is drained


@dataclass(frozen=True, slots=True)
class Plan:
    """`begin` has the key of the shape of each container to prepare, the first one first.

    `discard` has ids of prepared containers.
    """

    begin: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()


def plan(
    demands: Mapping[str, Demand],
    kept: Mapping[str, Sequence[str]],
    *,
    limit: int,
    now: float,
    held_back: Collection[str] = (),
) -> Plan:
    """Plan the containers to prepare and to discard, so that at most `limit` are kept.

    `demands` and `kept` are by key of a shape; `kept` has the ids of prepared containers, those
    that are being prepared last. Of shapes `held_back` none are begun.
    """
    current = {key: demand for key, demand in demands.items() if demand.is_current(now)}
    has = {key: len(kept.get(key, ())) for key in current}
    wanted = {
        key: min(demand.wanted, has[key]) if key in held_back else demand.wanted
        for key, demand in current.items()
    }
    admitted = _admitted(current, wanted, has, limit=limit, now=now)
    allotted = Counter(admitted)
    beginning: list[str] = []
    reached: Counter[str] = Counter()
    for key in admitted:
        reached[key] += 1
        if reached[key] > has[key]:
            beginning.append(key)
    discarded = [each for key, ids in kept.items() for each in _surplus(ids, allotted[key])]
    return Plan(tuple(beginning), tuple(discarded))


def _surplus(ids: Sequence[str], count: int) -> Sequence[str]:
    """All but the newest `count`."""
    return ids[: max(0, len(ids) - count)]


def _admitted(
    demands: Mapping[str, Demand],
    wanted: Mapping[str, int],
    has: Mapping[str, int],
    *,
    limit: int,
    now: float,
) -> list[str]:
    """The key of each container to keep, in rounds.

    Whether one more is within the limit and the shares depends on the numbers of the accounts
    alone, and any part of what is admitted would be admitted too. Therefore the order in which
    those that are kept come does not change what is admitted.
    """
    admitted: list[str] = []
    held: Counter[str] = Counter()  # By account
    closed: set[str] = set()  # Accounts that have their share
    most = 0  # Held by one account
    row = list(demands)
    number = 1
    while row:
        row = [key for key in row if wanted[key] >= number and demands[key].account not in closed]
        row.sort(key=lambda key: _place(key, demands[key], is_kept=has[key] >= number, now=now))
        for key in row:
            account = demands[key].account
            if account in closed:
                continue
            with_it = max(most, held[account] + 1)
            if exceeds_share(with_it - 1, 1, len(admitted), limit):
                closed.add(account)
                continue
            admitted.append(key)
            held[account] += 1
            most = with_it
        number += 1
    return admitted


def _place(
    key: str, demand: Demand, *, is_kept: bool, now: float
) -> tuple[bool, float, bool, str]:
    """The place of a shape in a round; `is_kept`: it has the container of this round."""
    stays = is_kept and demand.is_steady(now)
    age = float("inf") if demand.last_start is None else now - demand.last_start
    return not stays, age, not is_kept, key
