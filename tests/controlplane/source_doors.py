"""The doors by which callers and operators name where images come from."""

from itertools import count
from typing import Any

from pydantic import ValidationError

from controlplane.settings.model import Config
from controlplane.settings.registries import RegistryConfig
from tests.controlplane.hostile_strings import ALIASES
from tests.support.controlplane.system import APPLICATION, Answer, System

TRIED = "tried"
"""The registry that operators would have."""


class Guarded(System):
    """With a registry that has an alias."""

    @property
    def config(self) -> Config:
        local = RegistryConfig(name="local", address=self.registry.address, aliases=ALIASES)
        return super().config.model_copy(update={"registries": (local,)})


class Doors:
    """Tries a string at each; an application `game` and a registry `local` are there."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._numbers = count()

    async def registry(self, text: str) -> tuple[Answer, Answer]:
        """Have a new application, then the one that is there, in this registry."""
        return await self._both(registry=text)

    async def repository(self, text: str) -> tuple[Answer, Answer]:
        """Have a new application, then the one that is there, run this repository."""
        return await self._both(repository=text)

    async def tag(self, text: str) -> Answer:
        """Enable a tag."""
        return await self._system.call("POST", "/application/game/tags", json={"tag": text})

    async def address(self, text: str) -> Answer:
        """Configure a registry at this address."""
        return await self._configure(address=text)

    async def alias(self, text: str) -> Answer:
        """Configure a registry with this alias."""
        return await self._configure(address="registry.example", aliases=[text])

    async def log_in_host(self, text: str) -> Answer:
        """Configure a registry whose tokens are made there."""
        return await self._configure(address="registry.example", authHosts=[text])

    async def enable_there(self, repository: str) -> Answer:
        """Enable a tag of this repository of the registry that the operator just configured."""
        where = {"registry": TRIED, "repository": repository}
        edit = await self._system.call("PUT", "/application/game", json=where)
        assert edit.status == 204, edit.text
        return await self.tag("v1")

    def settings(self, text: str) -> list[bool]:
        """Return whether a settings file may have it: as address, alias, or host of tokens."""
        return [
            _may_be(address=text),
            _may_be(address="registry.example", aliases=(text,)),
            _may_be(address="registry.example", auth_hosts=(text,)),
        ]

    async def _both(self, **changes: str) -> tuple[Answer, Answer]:
        new = APPLICATION | {"name": f"new-{next(self._numbers)}"} | changes
        post = await self._system.call("POST", "/application", json=new)
        put = await self._system.call("PUT", "/application/game", json=changes)
        return post, put

    async def _configure(self, **body: object) -> Answer:
        path, token = f"/operator/registry/{TRIED}", self._system.operator_token
        return await self._system.call("PUT", path, token=token, json=body)


def _may_be(**keys: Any) -> bool:
    try:
        RegistryConfig(name=TRIED, **keys)
    except ValidationError:
        return False
    return True
