"""Registries, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import Field, ValidationInfo, field_validator

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import NO_CONTROLS
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Maybe, Shown
from controlplane.domain.applications.registries import Registry
from controlplane.domain.names import MAX_ALIASES, MAX_AUTH_HOSTS, MAX_PASSWORD, MAX_USERNAME
from controlplane.pki.certificates import MAX_CHARACTERS
from controlplane.settings.registries import Address, OwnAddress
from controlplane.storage.tables.applications.registries import counted

_Username = Annotated[
    str, Field(min_length=1, max_length=MAX_USERNAME, pattern=r"^[^:\u0000-\u001f\u007f-\u009f]*$")
]
_Password = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PASSWORD,
        pattern=NO_CONTROLS,
        json_schema_extra={"writeOnly": True},
    ),
]


class RegistryBody(Body):
    """The body of PUT /operator/registry/{registry}; aliases are other names of the address.

    `authHosts`: other hosts that may issue its tokens. `private`: its name may resolve to
    non-public addresses. `ca`: PEM text of the authorities to trust instead of the system's. A
    `username` without a `password` keeps the stored password.
    """

    address: OwnAddress
    aliases: Annotated[list[Address], Field(max_length=MAX_ALIASES)] | None = None
    username: _Username | None = None
    password: Annotated[_Password | None, Field(repr=False)] = None
    authHosts: Annotated[list[Address], Field(max_length=MAX_AUTH_HOSTS)] | None = None  # noqa: N815
    private: bool | None = None
    ca: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)] | None = None

    @field_validator("aliases")
    @classmethod
    def _each_once(cls, aliases: list[str] | None, info: ValidationInfo) -> list[str] | None:
        names = [str(info.data.get("address", "")), *(aliases or ())]
        if len({name.lower() for name in names}) != len(names):
            raise ValueError("the address and each alias may be listed once")
        return aliases

    @field_validator("password")
    @classmethod
    def _needs_username(cls, password: str | None, info: ValidationInfo) -> str | None:
        if password is not None and info.data.get("username", "") is None:
            raise ValueError("needs a username")
        return password


class ListedRegistry(Shown):
    """A registry with its number of applications; `declared` by the settings file.

    `username` and `ca` are null if not set. The password is never shown.
    """

    name: str
    address: str
    aliases: list[str]
    username: Maybe
    auth_hosts: list[str]
    private: bool
    ca: Maybe
    declared: bool = False
    applications: int = 0


@operation(key="registries")
async def list_registries(request: web.Request) -> Listing[ListedRegistry]:
    """List the registries and their usage."""
    services = services_of(request)
    declared = services.fleet_admin.declared["registry"]

    def show(each: tuple[Registry, int]) -> ListedRegistry:
        registry, applications = each
        is_declared = registry.name in declared
        return ListedRegistry.show(registry, declared=is_declared, applications=applications)

    return Listing(await services.store.read(counted), show)


@operation()
async def set_registry(request: web.Request, body: RegistryBody) -> None:
    """Create or replace a registry that the settings file does not declare.

    Enabled tags keep the address that they were enabled with. A password is kept only for the same
    username, address and `ca`, without further `authHosts`, and not if `private` is switched on.
    """
    registry = Registry(
        request.match_info["registry"],
        body.address,
        tuple(body.aliases or ()),
        username=body.username or "",
        auth_hosts=tuple(body.authHosts or ()),
        private=bool(body.private),
        ca=body.ca or "",
    )
    admin = services_of(request).fleet_admin
    await admin.set_registry(caller_of(request), registry, body.password)


@operation()
async def remove_registry(request: web.Request) -> None:
    """Remove an unused registry that the settings file does not declare."""
    name = request.match_info["registry"]
    await services_of(request).fleet_admin.remove_unused(caller_of(request), "registry", name)
