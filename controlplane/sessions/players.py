"""Players: who has joined a session."""

from collections.abc import Sequence

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.players import join, leave, leave_all
from tiltyard.runtime.failpoints import Reach, no_failpoint


class Players:
    """Use cases on players. Each is one transaction, so calls at the same time add up."""

    def __init__(self, store: Store, reach: Reach = no_failpoint) -> None:
        """Call `reach` at the named steps of `domain/steps.py`."""
        self._store = store
        self._reach = reach

    async def join(self, caller: Caller, session_id: str, players: Sequence[str]) -> list[str]:
        """Join players to a session and return all who are joined, in the order of joining.

        Idempotent: who is joined already keeps the place.

        Raises:
            NotFoundError: The account has no session of that id that has not ended.
            InvalidRequestError: It would have too many players; none of these joined.
        """
        joined = await join(self._store, caller.account, session_id, players)
        await self._reach("players.joined")
        return joined

    async def leave(self, caller: Caller, session_id: str | None, players: Sequence[str]) -> int:
        """Take players out of a session and return how many are left in it. Idempotent.

        The session may have ended, while it is known. Without one they leave every live session
        of the account, and the count is of those that they left.

        Raises:
            NotFoundError: The account has no such session; or, without one, none of the players
                is joined to a live session.
        """
        if session_id is None:
            left = await self._store.run(leave_all, caller.account, players)
        else:
            left = await self._store.run(leave, caller.account, session_id, players)
        await self._reach("players.left")
        return left
