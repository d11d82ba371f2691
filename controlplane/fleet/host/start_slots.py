"""The start slots of one host that are in use, as far as the control plane knows.

An attempt holds a slot from the choice of the host until the host has answered. If the call ends
without an answer, the attempt holds it until the host no longer reports it as starting: the engine
may still create its container. Other starts that the host reports (standbys, those of another
control plane or from before a restart) hold slots as well, of an account that is not known here.
"""

from collections.abc import Collection


class StartSlots:
    """Owns the slots of the attempts on one host."""

    def __init__(self) -> None:
        self._accounts: dict[str, str] = {}  # By attempt; only of attempts of this process
        self._called: set[str] = set()  # Attempts whose call has no answer yet
        self._reported: set[str] = set()  # Starts in progress by the last report

    @property
    def used(self) -> int:
        """The number of slots in use."""
        return len(self._called | self._reported)

    def held(self, account: str) -> int:
        """Return the number of slots that an account is known to hold."""
        return sum(holder == account for holder in self._accounts.values())

    def take(self, attempt: str, account: str) -> None:
        """Take a slot for an attempt."""
        self._accounts[attempt] = account
        self._called.add(attempt)

    def note_start(self, attempt: str) -> None:
        """Note that a start has succeeded, by its answer or a report of its session."""
        self._called.discard(attempt)
        self._reported.discard(attempt)
        self._accounts.pop(attempt, None)

    def end_call(self, attempt: str) -> None:
        """Note that the call of an attempt has failed, or was never made."""
        self._called.discard(attempt)
        self._forget_ended()

    def note_report(self, starting: Collection[str]) -> None:
        """Note the starts in progress, as the host reports them."""
        self._reported = set(starting)
        self._forget_ended()

    def _forget_ended(self) -> None:
        for attempt in self._accounts.keys() - self._called - self._reported:
            del self._accounts[attempt]
