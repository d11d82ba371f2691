"""Log-ins that operators set, end to end: our API, and a docker-registry that lets no one else in.

It is behind TLS with an authority of its own and has a name of an address that is not public.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.contract import RegistryLogin
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config, load_config
from controlplane.settings.registries import RegistryConfig
from tests.support.controlplane.secured_registry import (
    NAME,
    OTHER_PASSWORD,
    USER,
    SecuredRegistry,
    give_loopback_a_name,
    make_certificate,
)
from tests.support.controlplane.system import Answer, System, assert_error
from tests.support.harness import to_toml

pytestmark = pytest.mark.registry
SECRETS = (USER["password"], OTHER_PASSWORD)


class Configured(System):
    """Its operator configures one registry, in which its application has the tag `v1`."""

    def __init__(self, folder: Path, registry: SecuredRegistry, tls: dict[str, str]) -> None:
        super().__init__(folder)
        self.real = registry
        self.tls = tls
        self.declared: tuple[RegistryConfig, ...] = ()
        self.digest = ""

    @property
    def config(self) -> Config:
        found = super().config
        registries = (*found.registries, *self.declared)
        return found.model_copy(update={"registries": registries})

    @property
    def login(self) -> dict[str, Any]:
        address = f"{NAME}:{self.real.address.rpartition(':')[2]}"
        ca = Path(self.tls["certificate"]).read_text()
        return {"address": address, **USER, "private": True, "ca": ca}

    @property
    def key(self) -> Path:
        return self.config.state_dir / "registry.key"

    async def push(self) -> None:
        self.digest = await self.real.push("studio/own", "v1")

    async def set(self, **body: Any) -> Answer:
        path, token = "/operator/registry/own", self.operator_token
        return await self.call("PUT", path, token=token, json=body)

    async def enable_tag(self) -> Answer:
        return await self.call("POST", "/application/game/tags", json={"tag": "v1"})

    async def works(self) -> bool:
        """Enable the tag; tell whether the registry lets us."""
        answer = await self.enable_tag()
        if answer.status == 204:
            return True
        assert_error(answer, 503)
        assert not any(secret in answer.text for secret in SECRETS)
        return False

    async def lists(self) -> bool:
        """Ask for the tags, which are the registry's answer of a moment ago where it gave one."""
        answer = await self.call("GET", "/application/game/tags/available")
        if answer.status == 503:
            return False
        assert answer.json == {"tags": [{"version": "v1"}]}, answer.text
        return True


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def running(tls: dict[str, str]) -> Iterator[SecuredRegistry]:
    with SecuredRegistry(tls) as registry:
        yield registry


@pytest.fixture
async def system(
    tmp_path: Path,
    running: SecuredRegistry,
    tls: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Configured]:
    """Check at the end that no password is in the log or the state's files."""
    give_loopback_a_name(monkeypatch)
    caplog.set_level(logging.DEBUG)
    running.accept(USER["password"])
    async with AsyncExitStack() as stack:
        system = Configured(tmp_path, running, tls)
        await system.push()
        await stack.enter_async_context(system)
        yield system
    for secret in SECRETS:
        assert secret not in caplog.text
        for path in (tmp_path / "state").rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


async def with_application(system: Configured) -> None:
    body = {**system.login, "password": "not this one"}
    assert (await system.set(**body)).status == 204
    await system.make_application(tag=None, registry="own", repository="studio/own")


async def test_a_tag_is_enabled_with_the_log_in_that_was_set(system: Configured) -> None:
    await with_application(system)
    assert not await system.works()
    assert (await system.set(**system.login)).status == 204
    assert await system.works()
    (row,) = await system.rows("SELECT image FROM tag")
    assert row == (f"{system.login['address']}/studio/own@{system.digest}",)
    login = await system.control_plane._logins.login_for(row[0])
    assert login == RegistryLogin(**USER)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"password": OTHER_PASSWORD}, "it refused the log-in"),
        ({"username": "nobody"}, "it refused the log-in"),
        ({"username": None, "password": None}, "it wants a log-in, and none is configured"),
        ({"ca": None}, "its TLS cannot be trusted"),
        ({"private": False}, "it cannot be reached"),
    ],
)
async def test_a_log_in_that_does_not_do_is_told_without_its_secret(
    system: Configured, change: dict[str, Any], told: str
) -> None:
    await with_application(system)
    assert (await system.set(**{**system.login, **change})).status == 204
    answer = await system.enable_tag()
    assert_error(answer, 503)
    assert answer.json["details"] == f"cannot ask registry 'own': {told}"
    assert not await system.works()


async def test_a_password_is_rotated_from_one_request_to_the_next(system: Configured) -> None:
    await with_application(system)
    for password in (*SECRETS, USER["password"]):
        system.real.accept(password)
        assert not await system.works()
        assert (await system.set(**{**system.login, "password": "neither"})).status == 204
        assert not await system.lists()
        assert (await system.set(**{**system.login, "password": password})).status == 204
        assert await system.lists()
        assert await system.works()
        again = {name: value for name, value in system.login.items() if name != "password"}
        assert (await system.set(**again)).status == 204
        assert await system.works()


async def test_a_log_in_outlasts_a_restart_and_not_its_key(system: Configured) -> None:
    await with_application(system)
    assert (await system.set(**system.login)).status == 204
    await system.restart()
    assert await system.works()
    await system.stop_serving()
    kept = system.key.read_bytes()
    system.key.unlink()
    await system.serve()
    assert not await system.works()
    image = f"{system.login['address']}/studio/own@{system.digest}"
    with pytest.raises(StoreError, match="set its password again"):
        await system.control_plane._logins.login_for(image)
    # Neither is it lost when the file comes back, nor for who sets it again.
    await system.stop_serving()
    system.key.write_bytes(kept)
    await system.serve()
    assert await system.works()
    await system.stop_serving()
    system.key.unlink()
    await system.serve()
    assert (await system.set(**system.login)).status == 204
    assert await system.works()


async def test_the_settings_file_has_the_log_in(system: Configured, tmp_path: Path) -> None:
    await with_application(system)
    await system.rows("DELETE FROM application")
    token = system.operator_token
    answer = await system.call("DELETE", "/operator/registry/own", token=token)
    assert answer.status == 204, answer.text
    password, ca = tmp_path / "password", tmp_path / "ca.pem"
    password.touch(mode=0o600)
    password.write_text(f"{USER['password']}\n")
    shutil.copy(system.tls["certificate"], ca)
    entry = {name: system.login[name] for name in ("address", "username", "private")}
    entry |= {"name": "own", "password_file": str(password), "ca_file": str(ca)}
    settings = tmp_path / "controlplane.toml"
    settings.write_text(to_toml({"registries": [entry]}))
    system.declared = (await asyncio.to_thread(load_config, settings, {})).registries
    await system.restart()
    await system.make_application(tag=None, registry="own", repository="studio/own")
    assert await system.works()
    assert_error(await system.set(**system.login), 409)
