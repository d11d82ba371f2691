"""Log-ins of registries in the settings file, and the files that it names for them."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.settings.model import Config, load_config
from controlplane.settings.registries import RegistryConfig
from tests.support.authority import AUTHORITY
from tiltyard.runtime.settings.mistakes import SettingsError

PASSWORD = "s3cret wörd"


class Settings:
    """A settings file with one registry, and a file for its password and one for its authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = folder / "password"
        self.password.touch(mode=0o600)
        self.password.write_text(f"{PASSWORD}\n")
        self.ca = folder / "ca.pem"
        self.ca.write_text(AUTHORITY)
        self.login = f'username = "robot"\npassword_file = "{self.password}"\n'

    def load(self, keys: str, address: str = "h.example") -> Config:
        path = self.folder / "controlplane.toml"
        path.write_text(f'[[registries]]\nname = "r"\naddress = "{address}"\n{keys}')
        return load_config(path, {})

    def refused(self, keys: str, address: str = "h.example") -> str:
        with pytest.raises(SettingsError) as raised:
            self.load(keys, address)
        assert "s3cret" not in str(raised.value)
        [mistake] = raised.value.mistakes
        assert str(mistake).startswith(f"{self.folder}/controlplane.toml:")
        return str(replace(mistake, where=""))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


def test_a_log_in_is_read(settings: Settings) -> None:
    more = f'auth_hosts = ["a.example", "b:1"]\nprivate = true\nca_file = "{settings.ca}"\n'
    config = settings.load(settings.login + more)
    [registry] = config.registries
    assert (registry.password, registry.ca) == (PASSWORD, AUTHORITY)
    assert (registry.auth_hosts, registry.private) == (("a.example", "b:1"), True)
    assert "s3cret" not in repr(config)
    assert settings.load("").registries == (RegistryConfig(name="r", address="h.example"),)


@pytest.mark.parametrize(
    ("content", "password"),
    [("a", "a"), ("a\n", "a"), (" a ", " a "), ("x" * 4096 + "\n", "x" * 4096)],
)
def test_one_end_of_a_line_is_no_part_of_a_password(
    settings: Settings, content: str, password: str
) -> None:
    settings.password.write_text(content)
    assert settings.load(settings.login).registries[0].password == password


@pytest.mark.parametrize("content", [b"\n", b"a\n\n", b"x" * 4097, b"a\0b"])
def test_what_can_be_no_password(settings: Settings, content: bytes) -> None:
    settings.password.write_bytes(content)
    rule = "must be 1 to 4096 characters, none of them a control character"
    told = f"registries[0].password_file: what {settings.password} holds {rule}"
    assert settings.refused(settings.login).startswith(told)


def test_a_password_that_is_no_text(settings: Settings) -> None:
    settings.password.write_bytes(b"s3cret\xff")
    told = f"registries[0].password_file: {settings.password} is not UTF-8"
    assert settings.refused(settings.login).startswith(told)


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_password_is_for_its_owner_alone(settings: Settings, mode: int) -> None:
    settings.password.chmod(mode)
    told = settings.refused(settings.login)
    assert told.startswith("registries[0].password_file: others may ")
    assert told.endswith(f"chmod 600 {settings.password}`")
    settings.password.chmod(0o400)
    assert settings.load(settings.login).registries[0].password == PASSWORD


def test_a_password_s_file_that_is_none(settings: Settings) -> None:
    settings.password.unlink()
    told = f"registries[0].password_file: cannot read {settings.password}: No such file"
    assert settings.refused(settings.login).startswith(told)
    os.mkfifo(settings.password, 0o600)  # opening it would wait for who writes
    assert f"{settings.password} is no file" in settings.refused(settings.login)
    settings.password.unlink()
    settings.password.mkdir(mode=0o700)
    assert settings.refused(settings.login).startswith("registries[0].password_file: ")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "must be certificates as PEM text"),
        ("é" + AUTHORITY, "must be certificates as PEM text"),
        (AUTHORITY[:300], "must be certificates as PEM text"),
        (AUTHORITY + "-----BEGIN EC PRIVATE KEY-----", "holds a private key: certificates"),
        (AUTHORITY + 65536 * "\n", "must be at most 65536 characters"),
    ],
)
def test_what_can_be_no_authority(settings: Settings, content: str, why: str) -> None:
    settings.ca.write_text(content)
    told = settings.refused(f'ca_file = "{settings.ca}"')
    assert told.startswith(f"registries[0].ca_file: what {settings.ca} holds {why}")


def test_comments_beside_certificates_are_kept(settings: Settings) -> None:
    settings.ca.write_text(f"# ours\n{AUTHORITY}\n# another\n{AUTHORITY}")
    config = settings.load(f'ca_file = "{settings.ca}"')
    assert config.registries[0].ca == settings.ca.read_text()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('username = "robot"', "registries[0].username: goes together with password_file"),
        (
            'password = "s3cret"',
            "registries[0].password: unknown key 'password'; did you mean 'password_file'?",
        ),
        ("password_file = 5", "registries[0].password_file: must be a path in quotes"),
        ('ca_file = "/no/such"', "registries[0].ca_file: cannot read /no/such: No such file"),
        ("username = 5", "registries[0].username: must be a text in quotes, and is 5"),
        ('auth_hosts = "a"', "registries[0].auth_hosts: must be a list"),
        ('auth_hosts = ["https://a"]', "registries[0].auth_hosts[0]: must be host[:port]"),
        (f"auth_hosts = {17 * ['a.b']}", "registries[0].auth_hosts: must have at most 16 entries"),
        ("private = 1", "registries[0].private: must be true or false"),
        ('token = "x"', "registries[0].token: unknown key 'token'"),
    ],
)
def test_a_bad_log_in_is_refused(settings: Settings, keys: str, message: str) -> None:
    assert re.match(re.escape(message), settings.refused(keys))


@pytest.mark.parametrize("address", ["index.docker.io", "Docker.IO"])
def test_a_name_that_engines_leave_out_is_an_alias_alone(settings: Settings, address: str) -> None:
    told = settings.refused("", address)
    assert told.startswith("registries[0].address: must be registry-1.docker.io, with the aliases")
    assert settings.load(f'aliases = ["{address}"]').registries[0].aliases == (address,)


@pytest.mark.parametrize("username", ["a:b", "x" * 257])
def test_a_bad_name_is_refused(settings: Settings, username: str) -> None:
    told = settings.refused(settings.login.replace("robot", username))
    assert told.startswith("registries[0].username: must be 1 to 256 characters, none of them ':'")


def test_a_password_without_a_name_is_refused(settings: Settings) -> None:
    told = settings.refused(f'password_file = "{settings.password}"')
    assert told.startswith("registries[0].password_file: goes together with username")
