"""Accounts: authentication, and initialisation at the first start."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from controlplane.domain.access.audit import INITIALISER
from controlplane.domain.access.callers import Caller, StoredToken
from controlplane.domain.access.tokens import PresentedToken, matches, mint, parse
from controlplane.domain.errors import UnauthorizedError
from controlplane.metrics.http import HttpMetrics
from controlplane.storage.engine.cache import Cache
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import queue_as
from controlplane.storage.tables.access import accounts
from tiltyard.runtime.clock import Clock

LAST_USED_STEP = 60.0  # Minimum seconds between writes of a token's last use
MAX_TOKENS = 10_000  # Kept in memory
_NO_TOKEN = ""  # An id that no token has


@dataclass(slots=True)
class InitialTokens:
    """New tokens, shown once: of each created account, and the operator's."""

    accounts: dict[str, str] = field(default_factory=dict)
    operator_token: str | None = None

    def to_json(self) -> str:
        """Format as `init --json` prints."""
        return json.dumps({"accounts": self.accounts, "operator_token": self.operator_token})


class Accounts:
    """Use cases on accounts."""

    def __init__(self, store: Store, clock: Clock, metrics: HttpMetrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._tokens = Cache[StoredToken](store.changes, {Topic.TOKEN}, most=MAX_TOKENS)

    async def authenticate(self, token: str, address: str = "") -> Caller:
        """Return the caller of a token; this task's later database work queues under its account.

        Raises:
            UnauthorizedError: For every kind of invalid token alike.
        """
        presented = parse(token)
        caller = None
        if presented is not None:
            caller = await self._caller(presented, address)
        if caller is None:
            self._metrics.authentication_failures.inc()
            raise UnauthorizedError
        queue_as(caller.account)
        return caller

    async def _caller(self, presented: PresentedToken, address: str) -> Caller | None:
        known = self._tokens.get((presented.token_id,))
        stored = _checked(presented, known, self._clock.time())
        if stored is None:
            # A refusal from memory would come sooner than that of an unknown id, and so show
            # that the id exists: read the database once in either case.
            queue_as(f"token {presented.token_id}")
            read = presented.token_id if known is None else _NO_TOKEN
            find = partial(self._store.look, accounts.find_token, read)
            found = await self._tokens.get_or_read((read,), find)
            stored = _checked(presented, found, self._clock.time())
        if stored is None:
            return None
        now = self._clock.time()
        of = stored.caller
        caller = Caller(of.account, of.token_id, of.scopes, address, of.expire)
        if _is_due(stored, now):
            await self._store.run(accounts.note_use, caller, now)
        return caller

    async def initialise(
        self, names: Iterable[str], *, new_operator_token: bool = False
    ) -> InitialTokens:
        """Create missing accounts and operator token; `new_operator_token` forces a new one."""
        made = InitialTokens()
        now = self._clock.time()
        for name in names:
            token = mint()
            if await self._store.run(
                accounts.create_account, name, token, actor=INITIALISER, now=now
            ):
                made.accounts[name] = token.text
        operator = mint()
        another = new_operator_token
        create = accounts.create_operator_token
        if await self._store.run(create, operator, now, another=another):
            made.operator_token = operator.text
        return made


def _checked(
    presented: PresentedToken, stored: StoredToken | None, now: float
) -> StoredToken | None:
    """Return the stored token if it was presented and is valid."""
    is_right = matches(presented, None if stored is None else stored.secret_hash)
    return stored if stored is not None and is_right and stored.is_good(now) else None


def _is_due(stored: StoredToken, now: float) -> bool:
    """Return whether to write the last use of a token."""
    return stored.last_used is None or stored.last_used + LAST_USED_STEP <= now
