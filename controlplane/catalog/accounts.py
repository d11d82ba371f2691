"""Accounts: authentication, and initialisation at the first start."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.domain.errors import UnauthorizedError
from controlplane.domain.tokens import mint, parse
from controlplane.metrics.http import HttpMetrics
from controlplane.storage.engine.store import Store, queue_as
from controlplane.storage.tables import accounts
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.tokens import INITIALISER
from tiltyard.runtime.clock import Clock


@dataclass(slots=True)
class InitialTokens:
    """New tokens, shown once: of each created account, and the operator's."""

    accounts: dict[str, str] = field(default_factory=dict)
    operator_token: str | None = None

    def to_json(self) -> str:
        """Format as `init --json` prints."""
        return json.dumps({"accounts": self.accounts, "operator_token": self.operator_token})


@dataclass(frozen=True, slots=True)
class Accounts:
    """Use cases on accounts."""

    store: Store
    clock: Clock
    metrics: HttpMetrics

    async def authenticate(self, token: str, address: str = "") -> Caller:
        """Return the caller of a token; this task's later database work queues under its account.

        Raises:
            UnauthorizedError: For every kind of invalid token alike.
        """
        presented, caller = parse(token), None
        if presented is not None:
            queue_as(f"token {presented.token_id}")
            now = self.clock.time()
            caller = await accounts.find_caller(self.store, presented, address, now)
        if caller is None:
            self.metrics.authentication_failures.inc()
            raise UnauthorizedError
        queue_as(caller.account)
        return caller

    async def initialise(
        self, names: Iterable[str], *, new_operator_token: bool = False
    ) -> InitialTokens:
        """Create missing accounts and operator token; `new_operator_token` forces a new one."""
        made, now = InitialTokens(), self.clock.time()
        for name in names:
            token = mint()
            if await self.store.run(accounts.create_account, name, token, INITIALISER, now):
                made.accounts[name] = token.text
        operator, another = mint(), new_operator_token
        create = accounts.create_operator_token
        if await self.store.run(create, operator, now, another=another):
            made.operator_token = operator.text
        return made
