"""Registry logins set by operators: where a password is sent, and how long it is stored."""

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.operator.registries import RegistryBody
from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.contract import RegistryLogin
from controlplane.registries.endpoint import Endpoint
from controlplane.registries.http import RegistryHttp
from controlplane.registries.logins import Logins
from controlplane.registries.vault import Vault
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.tables.applications import registries
from tests.support.authority import AUTHORITY
from tests.support.controlplane.system import Answer, System, assert_error
from tests.unit.controlplane.registries.login_server import Server
from tiltyard.runtime.clock import SystemClock

PASSWORD = "s3cret wörd"
LOGIN = {"address": "r.example", "username": "robot", "password": PASSWORD}
KEPT = {"address": "r.example", "username": "robot"}
MORE = {"authHosts": ["auth.example"], "private": True, "ca": AUTHORITY}
IMAGE = f"r.example/studio/game@sha256:{'0' * 64}"


class Configured(System):
    """Has a registry `own`, set by operators."""

    @property
    def key(self) -> Path:
        return self.config.state_dir / "registry.key"

    async def put(self, **body: Any) -> Answer:
        return await self.call("PUT", "/operator/registry/own", json=body)

    async def listed(self, name: str = "own") -> dict[str, Any]:
        rows = (await self.read("/operator/registry"))["registries"]
        return {row["name"]: dict(row) for row in rows}[name]

    async def logins(self) -> Logins:
        """Read the key from its file."""
        logins = Logins(self.control_plane.store, Vault(self.key))
        await logins.seal_declared(())
        await logins.close()
        return logins

    async def endpoint(self, name: str = "own") -> Endpoint:
        row = await self.control_plane.store.run(registries.get, name)
        assert row is not None
        assert PASSWORD not in repr(row)
        return (await self.logins()).endpoint_of(row)

    async def login(self, image: str = IMAGE) -> RegistryLogin | None:
        return await (await self.logins()).login_for(image)


pytestmark = pytest.mark.system(kind=Configured)


async def test_login_is_stored_and_shown_without_its_password(system: Configured) -> None:
    assert (await system.put(**LOGIN, **MORE)).status == 204
    whole = Endpoint("r.example", "robot", PASSWORD, ("auth.example",), True, AUTHORITY)
    for _ in range(2):
        assert await system.endpoint() == whole
        assert await system.login() == RegistryLogin("robot", PASSWORD)
        shown = await system.listed()
        used = {"aliases": [], "declared": False, "applications": 0}
        assert shown == {"name": "own", **KEPT, **MORE, **used}
        await system.restart()
    assert PASSWORD not in repr(await system.login())


def test_text_form_of_a_body_has_no_password() -> None:
    """The text may become part of a log line."""
    assert "s3cret" not in repr(RegistryBody.model_validate(LOGIN))


async def test_put_replaces_the_whole_registry(system: Configured) -> None:
    assert (await system.put(**LOGIN, **MORE)).status == 204
    assert (await system.put(address="r.example")).status == 204
    assert await system.endpoint() == Endpoint("r.example")
    assert await system.login() is None
    assert await system.rows("SELECT sealed_password FROM registry WHERE name='own'") == [(None,)]
    # A removed password does not come back.
    assert_error(await system.put(**KEPT), 422, "password")


@pytest.mark.parametrize(
    "change",
    [
        {"address": "evil.example"},
        {"username": "Robot"},
        {"authHosts": ["auth.example", "evil.example"]},
        {"private": True},
        {"ca": AUTHORITY},
    ],
)
async def test_new_destination_needs_password(system: Configured, change: dict[str, Any]) -> None:
    assert (await system.put(**LOGIN, authHosts=["auth.example"])).status == 204
    before = await system.endpoint()
    refused = await system.put(**{**KEPT, "authHosts": ["auth.example"], **change})
    assert_error(refused, 422, "password")
    assert await system.endpoint() == before


async def test_password_is_kept_if_no_destination_is_added(system: Configured) -> None:
    assert (await system.put(**LOGIN, **MORE)).status == 204
    for body in (
        {**KEPT, **MORE},
        {**KEPT, "aliases": ["other.example"], "private": True, "ca": AUTHORITY},
        {**KEPT, "address": "R.example", "ca": AUTHORITY},
    ):
        assert (await system.put(**body)).status == 204
        assert (await system.endpoint()).password == PASSWORD
    # A removed destination needs the password again.
    to_auth_host = await system.put(**KEPT, ca=AUTHORITY, authHosts=["auth.example"])
    assert_error(to_auth_host, 422, "password")
    to_private_address = await system.put(**KEPT, ca=AUTHORITY, private=True)
    assert_error(to_private_address, 422, "password")
    assert_error(await system.put(**KEPT), 422, "password")  # also for the system's CAs


async def test_audit_records_that_a_password_was_given(system: Configured) -> None:
    for body in (LOGIN, KEPT, {**KEPT, "aliases": ["a.example"]}, LOGIN, {"address": "r.example"}):
        assert (await system.put(**body)).status == 204
    events = [data for (data,) in await system.events("registry.set", "data")]
    assert ['"passwordGiven": true' in data for data in events] == [True, False, True, False]
    assert not any("s3cret" in data for data in events)


async def test_login_of_an_image_is_found_by_exact_address(system: Configured) -> None:
    assert (await system.put(**LOGIN, aliases=["alias.example"])).status == 204
    for address in ("r.example", "R.EXAMPLE"):
        login = await system.login(IMAGE.replace("r.example", address))
        assert login == RegistryLogin("robot", PASSWORD)
    for address in ("alias.example", "r.example:443", "example", "r_example"):
        assert await system.login(IMAGE.replace("r.example", address)) is None
    assert (await system.put(**{**LOGIN, "address": "moved.example"})).status == 204
    assert await system.login() is None


async def test_registry_is_unusable_without_the_key_until_its_password_is_set(
    system: Configured, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"localhost:{system.registry.address.rpartition(':')[2]}"
    login = {**LOGIN, "address": address}
    assert (await system.put(**login)).status == 204
    system.registry.push("studio/game", "v1")
    await system.make_application(tag=None, registry="own")
    await system.make_application(tag=None, name="other")
    await system.stop_serving()
    system.key.unlink()
    await system.serve()
    caplog.set_level(logging.WARNING)
    unusable = "cannot ask registry 'own': its password is unusable"
    assert_error(await system.enable_tag(), 503, whole=unusable)
    assert f"{system.key} is not the key of its password: set its password again" in caplog.text
    with pytest.raises(StoreError, match=r"'own': .*: set its password again"):
        await system.login(f"{address}/studio/game@sha256:0")
    # Everything else works, and the registry is shown unchanged.
    assert (await system.listed())["username"] == "robot"
    assert (await system.enable_tag(name="other")).status == 204
    assert (await system.put(**login)).status == 204
    assert (await system.enable_tag()).status == 204


async def test_docker_hub_and_its_token_service_receive_the_password(system: Configured) -> None:
    hub = {"address": "registry-1.docker.io", "aliases": ["docker.io"]}
    assert (await system.put(**{**LOGIN, **hub, "authHosts": ["a.example"]})).status == 204
    endpoint = await system.endpoint()
    assert endpoint.auth_hosts == ("auth.docker.io", "a.example")
    assert endpoint.password == PASSWORD


async def test_token_of_an_earlier_password_is_not_used(system: Configured) -> None:
    async with AsyncExitStack() as stack:
        server = Server(RegistryHttp(SystemClock()))
        await server.start(stack)
        login = {**LOGIN, "address": server.address}
        assert (await system.put(**login)).status == 204
        await system.make_application(tag=None, registry="own")
        server.token = {"token": "t1", "expires_in": 3600}
        await system.call("GET", "/application/game/tags/available")
        server.token = {"token": "t2", "expires_in": 3600}
        assert (await system.put(**{**login, "password": "another"})).status == 204
        server.asked.clear()
        await system.call("GET", "/application/game/tags/available")
        used = [header for path, _, header in server.asked if path.startswith("/v2/")]
        assert "Bearer t1" not in used
        assert used[-1] == "Bearer t2"


async def test_password_of_the_settings_file_is_sealed_at_each_start(system: Configured) -> None:
    assert not system.key.exists()
    filed = RegistryConfig(name="filed", address="filed.example")
    for password in ("first", "second"):
        system.registries = [filed.model_copy(update={"username": "robot", "password": password})]
        await system.restart()
        assert await system.endpoint("filed") == Endpoint("filed.example", "robot", password)
        assert (await system.listed("filed"))["username"] == "robot"
    await system.stop_serving()
    system.key.unlink()
    await system.serve()
    assert (await system.endpoint("filed")).password == "second"
    # A registry removed from the file is kept.
    system.registries = []
    await system.restart()
    assert (await system.endpoint("filed")).password == "second"
    assert (await system.listed("filed"))["declared"] is False
