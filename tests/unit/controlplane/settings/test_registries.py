import os
from pathlib import Path

import pytest

from controlplane.settings.model import Config, load_config
from controlplane.settings.registries import RegistryConfig
from tests.support.authority import AUTHORITY
from tiltyard.runtime.settings import SettingsError

PASSWORD = "s3cret wörd"
PRIVATE = "-----BEGIN EC PRIVATE KEY-----"


class Settings:
    """A settings file with one registry, a password file and a CA file."""

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
        return str(raised.value).partition(": registries[0].")[2]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


def test_reads_a_login(settings: Settings) -> None:
    more = f'auth_hosts = ["a.example", "b:1"]\nprivate = true\nca_file = "{settings.ca}"\n'
    config = settings.load(settings.login + more)
    [registry] = config.registries
    assert registry.password == PASSWORD
    assert registry.ca == AUTHORITY
    assert registry.auth_hosts == ("a.example", "b:1")
    assert registry.private is True
    assert "s3cret" not in repr(config)
    assert settings.load("").registries == (RegistryConfig(name="r", address="h.example"),)


def test_removes_one_line_break_from_a_password(settings: Settings) -> None:
    settings.password.write_text(" " * 4096 + "\n")
    assert settings.load(settings.login).registries[0].password == " " * 4096


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\n", "must be 1 to 4096"),
        (b"a\n\n", "must be 1 to 4096"),
        (b"a\0b", "must be 1 to 4096"),
        (b"x" * 4097, "must be 1 to 4096"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_rejects_an_unsendable_password(settings: Settings, content: bytes, problem: str) -> None:
    settings.password.write_bytes(content)
    assert problem in settings.refused(settings.login)


@pytest.mark.parametrize("mode", [0o640, 0o602], ids=oct)
def test_password_file_must_be_private(settings: Settings, mode: int) -> None:
    settings.password.chmod(mode)
    refusal = settings.refused(settings.login)
    assert refusal.startswith("password_file: ")
    assert "is accessible to other users" in refusal
    assert refusal.endswith(f"chmod 600 {settings.password}`")


def test_password_file_may_be_read_only(settings: Settings) -> None:
    settings.password.chmod(0o400)
    assert settings.load(settings.login).registries[0].password == PASSWORD


def test_missing_password_file_is_refused(settings: Settings) -> None:
    settings.password.unlink()
    assert settings.refused(settings.login).startswith("password_file: cannot read ")


def test_password_file_must_be_regular(settings: Settings) -> None:
    settings.password.unlink()
    os.mkfifo(settings.password, 0o600)  # a blocking open would wait for a writer
    assert f"{settings.password} is not a file" in settings.refused(settings.login)
    settings.password.unlink()
    settings.password.mkdir(mode=0o700)
    assert settings.refused(settings.login).startswith("password_file: ")


def test_keeps_comments_beside_certificates(settings: Settings) -> None:
    settings.ca.write_text(f"# ours\n{AUTHORITY}\n# another\n{AUTHORITY}")
    [registry] = settings.load(f'ca_file = "{settings.ca}"').registries
    assert registry.ca == settings.ca.read_text()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "must be certificates as PEM text"),
        ("é" + AUTHORITY, "must be certificates as PEM text"),
        (AUTHORITY[:300], "must be certificates as PEM text"),
        (AUTHORITY + PRIVATE, "contains a private key: only certificates"),
        (AUTHORITY + 65536 * "\n", "must be at most 65536 characters"),
    ],
    ids=["empty", "not ASCII", "cut", "a key", "too long"],  # AUTHORITY is made by each process
)
def test_rejects_invalid_ca_files(settings: Settings, content: str, problem: str) -> None:
    settings.ca.write_text(content)
    refusal = settings.refused(f'ca_file = "{settings.ca}"')
    assert refusal.startswith(f"ca_file: the content of {settings.ca} {problem}")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ('username = "robot"', "username: goes together with password_file"),
        ('password = "s3cret"', "password: unknown key"),
        ("password_file = 5", "password_file: must be a path in quotes"),
        ('ca_file = "/no/such"', "ca_file: cannot read /no/such: No such file"),
        ('username = "a:b"', "username: must be 1 to 256 characters, none of them ':'"),
        ('auth_hosts = ["https://a"]', "auth_hosts[0]: must be host[:port]"),
        (f"auth_hosts = {17 * ['a.b']}", "auth_hosts: "),
        ("private = 1", "private: "),
    ],
)
def test_rejects_an_invalid_login(settings: Settings, keys: str, key: str) -> None:
    assert settings.refused(keys).startswith(key)


@pytest.mark.parametrize("name", ["index.docker.io", "Docker.IO"])
def test_docker_hub_name_is_accepted_only_as_an_alias(settings: Settings, name: str) -> None:
    refusal = settings.refused("", name)
    assert refusal.startswith("address: must be registry-1.docker.io, with the aliases")
    assert settings.load(f'aliases = ["{name}"]').registries[0].aliases == (name,)
