"""The start slots of one host that are in use, as far as the control plane knows.

An attempt holds a slot from the choice of the host until the host has answered. If the call ends
without an answer, the attempt holds it until the host no longer reports it as starting: the engine
may still create its container. Other starts that the host reports (standbys, those of another
control plane or from before a restart) hold slots as well, of an account that is not known here.
"""

from collections import Counter
from collections.abc import Collection

from controlplane.domain.placement.host_room import Slots
from tiltyard.runtime.fair_share import exceeds_share


class StartSlots:
    """Owns the slots of the attempts on one host."""

    def __init__(self) -> None:
        self.used = 0
        """The number of slots in use."""
        self._accounts: dict[str, str] = {}  # By attempt; only of attempts of this process
        self._held: Counter[str] = Counter()  # By account, how many of `_accounts`
        self._called: set[str] = set()  # Attempts whose call has no answer yet
        self._reported: set[str] = set()  # Starts in progress by the last report

    def held(self, account: str) -> int:
        """Return the number of slots that an account is known to hold."""
        return self._held.get(account, 0)

    def has_one(self, account: str, total: int) -> bool:
        """Return whether an account may take one of the `total` slots of the host."""
        held = self.held(account)
        return not exceeds_share(held, 1, self.used, total)

    def left(self, total: int) -> Slots:
        """Return which accounts may take one of the `total` slots of the host."""
        is_free = not exceeds_share(0, 1, self.used, total)
        others = (account for account in self._held if self.has_one(account, total) != is_free)
        return Slots(is_free, frozenset(others))

    def take(self, attempt: str, account: str) -> None:
        """Take a slot for an attempt."""
        self._leave(attempt)
        self._accounts[attempt] = account
        self._held[account] += 1
        self._called.add(attempt)
        self._count()

    def note_start(self, attempt: str) -> bool:
        """Note that a start has succeeded, by its answer or a report of its session.

        Return whether it has held a slot.
        """
        is_held = attempt in self._called or attempt in self._reported
        if is_held:
            self._called.discard(attempt)
            self._reported.discard(attempt)
            self._leave(attempt)
            self._count()
        return is_held

    def end_call(self, attempt: str) -> None:
        """Note that the call of an attempt has failed, or was never made."""
        self._called.discard(attempt)
        if attempt not in self._reported:
            self._leave(attempt)
        self._count()

    def note_report(self, starting: Collection[str]) -> None:
        """Note the starts in progress, as the host reports them."""
        self._reported = set(starting)
        ended = [a for a in self._accounts if a not in self._called and a not in self._reported]
        for attempt in ended:
            self._leave(attempt)
        self._count()

    def _leave(self, attempt: str) -> None:
        account = self._accounts.pop(attempt, None)
        if account is not None:
            self._held[account] -= 1
            if not self._held[account]:
                del self._held[account]

    def _count(self) -> None:
        only_reported = sum(attempt not in self._called for attempt in self._reported)
        self.used = len(self._called) + only_reported
