"""Renewal of the identity of a running agent, on request of the control plane."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.domain.errors import InvalidArgumentError
from agent.rpc.identity import FILE, Identity, UnfitIdentityError


class HostIdentity:
    """Renews the identity of a running agent."""

    def __init__(
        self, state_dir: Path, run: Callable[..., Awaitable[Any]], time: Callable[[], float]
    ) -> None:
        """`run` calls a blocking function on a thread; `time` returns Unix time."""
        self.path = state_dir / FILE
        self.run = run
        self._time = time
        self._requested_key: bytes | None = None

    async def request(self) -> bytes:
        """Create a key, replacing an earlier unused one, and return its signing request."""
        await self._current()
        signing = await self.run(_signing)
        request: bytes
        self._requested_key, request = signing.make_request()
        return request

    async def install(self, certificate: bytes, authorities: bytes = b"") -> None:
        """Replace what is not empty, for new connections. Idempotent.

        Raises:
            InvalidArgumentError: The certificate is not for this host and the last requested key,
                or not signed by the first authority.
        """
        current = await self._current()
        signing = await self.run(_signing)
        try:
            renewed = signing.trusting(current, authorities) if authorities else current
            if certificate not in {b"", current.certificate}:
                if self._requested_key is None:
                    raise InvalidArgumentError("certificate", "none was requested")
                renewed = replace(renewed, key=self._requested_key, certificate=certificate)
            if renewed == current:
                return
            if signing.check(renewed, self._time()) != current.uri:
                raise InvalidArgumentError("certificate", "it names another host")
        except UnfitIdentityError as error:
            raise InvalidArgumentError("certificate", str(error)) from error
        await self.run(renewed.save, self.path)
        if renewed.key == self._requested_key:  # else a new key was requested concurrently
            self._requested_key = None

    async def _current(self) -> Identity:
        try:
            current: Identity | None = await self.run(Identity.read, self.path)
        except (OSError, UnfitIdentityError) as error:
            cause = f"its identity cannot be read: {error}"
            raise InvalidArgumentError("the call", cause) from error
        if current is None:
            raise InvalidArgumentError("the call", "this host is not enrolled")
        return current


def _signing() -> ModuleType:
    """Import what only a renewal needs. Blocks."""
    from agent.rpc import signing

    return signing
