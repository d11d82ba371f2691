"""Avoidance of hosts where starts failed for a reason other than capacity.

One failure does not show whether the host or the application is at fault. So an application avoids
a host where its own starts fail. All applications avoid it only if those of two accounts fail
there without a success in between: no account alone can make others avoid a host.

Avoided hosts rank behind all others; they are not excluded. Pure, time as an argument.
"""

from dataclasses import dataclass

from controlplane.domain.errors import AgentRefusedError
from tiltyard.contract import ErrorReason

FIRST_PAUSE = 5.0  # Seconds that a first failure avoids a host; each one after a pause doubles it

LONGEST_PAUSE = 300.0

MOST = 100  # Applications remembered per host, those with the newest failures

HOST_FAULTS = frozenset(
    {
        ErrorReason.ENGINE_ERROR,
        ErrorReason.ENGINE_TIMEOUT,
        ErrorReason.ENGINE_UNAVAILABLE,
        ErrorReason.CONTAINER_GONE,
        ErrorReason.DISK_FULL,
        ErrorReason.INTERNAL,
    }
)
"""Failures after which another host may succeed."""

LACK_OF_ROOM = frozenset(
    {
        ErrorReason.NO_CAPACITY,
        ErrorReason.NO_FREE_PORT,
        ErrorReason.PORT_TAKEN,
        ErrorReason.PORT_OUT_OF_RANGE,
        ErrorReason.START_QUEUE_FULL,
        ErrorReason.NOT_RECONCILED,
        ErrorReason.DRAINING,
    }
)
"""Reasons for which a host takes no more starts now; the caller gets any other reason."""

Owner = tuple[str, str]  # An account and its application

EVERYONE: Owner = ("", "")
"""In place of an application: all applications avoid a host."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The newest failed start of an application on a host.

    `count`: failures since the last success. The host is avoided for `pause` seconds, until the
    monotonic time `until`, which is `until_time` of the wall clock.
    """

    account: str
    application: str
    reason: ErrorReason
    text: str
    count: int
    failed: float
    pause: float
    until: float
    until_time: float


class StartFailures:
    """The failed starts of one host."""

    def __init__(self) -> None:
        self._newest: dict[Owner, StartFailure] = {}
        self._accounts: dict[str, float] = {}
        """Accounts with a failure since the last success, and when it expires."""

    def note(
        self, owner: Owner, error: AgentRefusedError, now: float, time: float
    ) -> StartFailure:
        """Record a failed start at `now` of the monotonic clock and `time` of the wall clock.

        Failures during a pause do not extend it.
        """
        self._forget(now)
        before = self._newest.pop(owner, None)
        if before is not None and now < before.until:
            pause = before.pause
            until = before.until
            until_time = before.until_time
        else:
            pause = FIRST_PAUSE if before is None else min(2 * before.pause, LONGEST_PAUSE)
            until = now + pause
            until_time = time + pause
        count = 1 if before is None else before.count + 1
        failure = StartFailure(
            *owner, error.agent_reason, error.text, count, time, pause, until, until_time
        )
        self._newest[owner] = failure
        if len(self._newest) > MOST:
            del self._newest[next(iter(self._newest))]
        self._accounts[owner[0]] = max(until, self._accounts.get(owner[0], until))
        return failure

    def note_success(self, owner: Owner) -> None:
        """Record a successful start: its application no longer avoids the host."""
        self._newest.pop(owner, None)
        self._accounts.clear()

    def avoided(self, owner: Owner, now: float) -> StartFailure | None:
        """Return the failure that makes an application avoid the host now."""
        if not self._newest:
            return None
        own = self._newest.get(owner)
        if own is not None and now < own.until:
            return own
        return self.all_failures(now)[0] if self.is_failing(now) else None

    def until(self) -> dict[Owner, float]:
        """Return until when each application avoids the host, at the monotonic clock."""
        until = {owner: failure.until for owner, failure in self._newest.items()}
        if len(self._accounts) > 1:
            until[EVERYONE] = sorted(self._accounts.values())[-2]
        return until

    def is_failing(self, now: float) -> bool:
        """Return True while all applications avoid the host."""
        return sum(1 for until in self._accounts.values() if now < until) > 1

    def all_failures(self, now: float) -> list[StartFailure]:
        """Return the failures, newest first."""
        self._forget(now)
        return list(reversed(self._newest.values()))

    def _forget(self, now: float) -> None:
        """Drop old failures, so that the next one counts as the first."""
        known = self._newest.items()
        self._newest = {owner: each for owner, each in known if now <= each.until + LONGEST_PAUSE}
        self._accounts = {name: until for name, until in self._accounts.items() if now < until}
