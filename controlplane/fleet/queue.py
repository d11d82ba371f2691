"""Choosing a host for a start, and the line for those that have to wait for a start slot.

A host begins so many starts at once; more would only make each of them slower. What has room
but no slot is waited for, in one line for each region and node pool, in which accounts take turns.
A slot that gets free is offered to that line in the same step of the event loop, so nobody who
comes later takes it.
"""

import asyncio
import math
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from controlplane.domain.errors import NoCapacityCause, NoCapacityError
from controlplane.domain.fair_queue import FairLine
from controlplane.domain.placement import Wanted
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.link import HostLink
from controlplane.fleet.room_forecast import RoomForecast
from controlplane.http.turns import leave_turn
from tiltyard.runtime.clock import Clock

RECHECK = 0.5
"""Seconds between two looks whether there still are hosts with room for those who wait."""

MEMORY = 100
"""Turns after which what they took counts for about a third in the pace of a line."""

REACH = 10
"""Cap of an estimate, as a multiple of the observed window, so that one slow start rejects few."""


@dataclass(slots=True, eq=False)
class _Wish:
    """What some of those who wait want alike, so that it is compared with a host once."""

    wanted: Wanted
    waiting: int = 0
    fits: bool = False


@dataclass(slots=True, eq=False)
class Ask:
    """What one attempt asks for; `refused` are hosts that are not asked again."""

    place: tuple[str, str]
    account: str
    wanted: Wanted
    internal_id: str
    refused: frozenset[str] = frozenset()
    given: "asyncio.Future[HostLink | None]" = field(init=False)
    """The host, once there is one; None when the wait was called off."""
    wish: _Wish = field(init=False)


@dataclass(slots=True)
class Pace:
    """How fast the turns of a line come: `turns` in so many seconds; old ones are forgotten."""

    turns: float = 0.0
    seconds: float = 0.0

    @property
    def interval(self) -> float:
        """Seconds between two turns; 0 while nothing is known."""
        return self.seconds / self.turns if self.turns else 0.0

    def note_first(self, seconds: float) -> None:
        """Take in that the first of a line waited so long: turns come no slower than that.

        Of many starts that were begun together the first ends late, and the others with it.
        """
        if seconds < self.interval:
            self.note(seconds)

    def note(self, seconds: float) -> None:
        """Take in that a turn came so long after the one before, while somebody waited."""
        kept = 1 - 1 / MEMORY
        self.turns = kept * self.turns + 1
        self.seconds = kept * self.seconds + seconds

    def seconds_for(self, turns: int) -> float:
        """Estimate what so many turns take, or what they take at least."""
        return min(turns * self.interval, REACH * self.seconds)


@dataclass(slots=True, eq=False)
class _Line:
    place: tuple[str, str]
    waiting: FairLine[Ask] = field(default_factory=FairLine)
    wishes: dict[Wanted, _Wish] = field(default_factory=dict)
    is_watched: bool = False
    pace: Pace = field(default_factory=Pace)
    last_turn: float = 0.0
    """When the last turn was, or when the first in an empty line joined it."""
    had_turn: bool = False
    """True once there was a turn since then."""

    def join(self, ask: Ask, now: float) -> None:
        if not self.waiting:
            self.last_turn, self.had_turn = now, False
        ask.wish = self.wishes.setdefault(ask.wanted, _Wish(ask.wanted))
        ask.wish.waiting += 1
        self.waiting.join(ask.account, ask)

    def leave(self, ask: Ask, *, served: bool = False) -> bool:
        """Take one out, because it was served or as it goes; False when it is not in the line."""
        if not (self.waiting.serve if served else self.waiting.leave)(ask.account, ask):
            return False
        ask.wish.waiting -= 1
        if not ask.wish.waiting:
            del self.wishes[ask.wanted]
        return True

    def note_turn(self, now: float) -> None:
        (self.pace.note if self.had_turn else self.pace.note_first)(now - self.last_turn)
        self.last_turn, self.had_turn = now, True

    def seconds_until(self, account: str) -> float:
        """Estimate when a start that joins now would begin; 0 while nothing is known."""
        return self.pace.seconds_for(self.waiting.ahead(account) + 1)


class HostQueue:
    """Owns the lines of the fleet."""

    def __init__(self, fleet: Fleet, *, max_waiting: int, clock: Clock) -> None:
        """Let at most `max_waiting` wait in each line."""
        self._fleet = fleet
        self._max_waiting = max_waiting
        self._clock = clock
        self._lines: dict[tuple[str, str], _Line] = {}
        self._forecasts: dict[tuple[str, str], RoomForecast] = {}
        self._ends: WeakKeyDictionary[HostLink, int] = WeakKeyDictionary()
        """Of the sessions of each host, as far as its forecast knows of them."""
        fleet.on_change(self._note_ends)
        fleet.on_change(self._offer)

    async def take_host(self, ask: Ask, seconds: float) -> HostLink | None:
        """Choose a host and take what the attempt needs of it, waiting so long at most.

        None when the wait was called off.

        Raises:
            NoCapacityError: No host has room, or none could begin it in time.
            HostsNotReportedError: Only hosts that have not reported yet may have room.
        """
        leave_turn()
        link = self._fleet.take_host(*ask.place, ask.wanted, ask.internal_id, ask.refused)
        if link is not None:
            return link
        if self._fleet.hopeless(*ask.place, [(ask.wanted, ask.refused)]):
            raise self._no_room(ask)
        line = self._lines.setdefault(ask.place, _Line(ask.place))
        self._check_wait(line, ask, seconds)
        ask.given = asyncio.get_running_loop().create_future()
        line.join(ask, self._clock.monotonic())
        self._watch(line)
        try:
            await asyncio.wait({ask.given}, timeout=seconds)
        except asyncio.CancelledError:
            self._give_back(ask)
            raise
        finally:
            line.leave(ask)
        if not ask.given.done():
            if self._fleet.without_room(*ask.place, [(ask.wanted, ask.refused)]):
                self._fleet.unreported.check([ask.place], taking=True)
            wait = max(1, math.ceil(line.seconds_until(ask.account)))
            why, cause = "the time for a start is over", NoCapacityCause.OUT_OF_TIME
            raise NoCapacityError(ask.place[0], why, wait, cause)
        return ask.given.result()

    def waiting(self) -> dict[tuple[str, str], int]:
        """Count those who wait, by region and node pool."""
        return {place: len(line.waiting) for place, line in self._lines.items()}

    def call_off(self, ask: Ask) -> None:
        """Let one who waits go without a host; nothing happens when it does not wait."""
        line = self._lines.get(ask.place)
        if line is not None and line.leave(ask):
            ask.given.set_result(None)

    def _give_back(self, ask: Ask) -> None:
        """Return what was given to one who had just gone."""
        if ask.given.done() and ask.given.exception() is None:
            link = ask.given.result()
            if link is not None:
                self._fleet.give_back(link, ask.internal_id)

    def _watch(self, line: _Line) -> None:
        if not line.is_watched:
            line.is_watched = True
            asyncio.get_running_loop().call_later(RECHECK, self._recheck, line)

    def _recheck(self, line: _Line) -> None:
        """Refuse those for whom no host has room any more."""
        line.is_watched = False
        wishes = {(ask.wish, ask.refused) for ask in line.waiting}
        hopeless = self._fleet.hopeless(
            *line.place, ((wish.wanted, refused) for wish, refused in wishes)
        )
        for ask in list(line.waiting) if hopeless else ():
            if (ask.wanted, ask.refused) in hopeless:
                line.leave(ask)
                ask.given.set_exception(self._no_room(ask))
        if line.waiting:
            self._watch(line)

    def _check_wait(self, line: _Line, ask: Ask, seconds: float) -> None:
        """Refuse at once who could not begin in time, and say when another try could.

        Never the first: nobody else could find out that hosts are faster again.
        """
        if not line.waiting:
            return
        wait = line.seconds_until(ask.account)
        if wait > seconds or len(line.waiting) >= self._max_waiting:
            why = f"{len(line.waiting)} starts wait for their turn"
            after = max(1, math.ceil(wait - seconds))
            raise NoCapacityError(ask.place[0], why, after, NoCapacityCause.LINE_FULL)

    def _offer(self, link: HostLink) -> None:
        """Give the free slots of a host to those whose turn it is."""
        line = self._lines.get((link.row.region, link.row.node_pool))
        while line is not None and line.waiting and link.has_start_slot:
            fitting = self._fleet.fitting(link, line.wishes)
            if not fitting:
                return
            for wish in line.wishes.values():
                wish.fits = False
            for wanted in fitting:
                line.wishes[wanted].fits = True
            ask = line.waiting.first(
                lambda one: one.wish.fits and link.row.name not in one.refused
            )
            if ask is None:
                return
            line.leave(ask, served=True)
            line.note_turn(self._clock.monotonic())
            link.hold(ask.internal_id, ask.wanted)
            ask.given.set_result(link)

    def _no_room(self, ask: Ask) -> NoCapacityError:
        forecast = self._forecasts.setdefault(ask.place, RoomForecast())
        wait = forecast.retry_after(self._clock.monotonic())
        return NoCapacityError(ask.place[0], "no host has room", wait, NoCapacityCause.NO_ROOM)

    def _note_ends(self, link: HostLink) -> None:
        """Learn how fast room gets free; a host that takes no sessions has none to give."""
        ended = link.ends - self._ends.get(link, 0)
        self._ends[link] = link.ends
        if ended > 0 and not link.draining:
            place = (link.row.region, link.row.node_pool)
            forecast = self._forecasts.setdefault(place, RoomForecast())
            forecast.note_ends(ended, self._clock.monotonic())
