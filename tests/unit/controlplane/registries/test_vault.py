"""Registry passwords at rest: sealing, and lost or wrong keys."""

from pathlib import Path

import pytest

from controlplane.domain.errors import StoreError
from controlplane.registries.endpoint import UnusableError
from controlplane.registries.vault import Vault

WHOSE = ("registry.example:5000", "robot")
PASSWORD = "s3cret wörd"
LOST = "set its password again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "registry.key"


def loaded(path: Path) -> Vault:
    vault = Vault(path)
    vault.load()
    return vault


def test_unseals_a_password_with_the_same_key(path: Path) -> None:
    sealed = loaded(path).seal(*WHOSE, PASSWORD)
    assert PASSWORD.encode() not in sealed
    assert loaded(path).unseal(*WHOSE, sealed) == PASSWORD
    assert loaded(path).unseal("Registry.EXAMPLE:5000", "robot", sealed) == PASSWORD
    assert sealed != loaded(path).seal(*WHOSE, PASSWORD)


@pytest.mark.parametrize(
    ("address", "username"),
    [
        ("evil.example", "robot"),
        ("registry.example", "robot"),
        (WHOSE[0], "Robot"),
        (WHOSE[0], ""),
    ],
)
def test_password_is_bound_to_user_and_address(path: Path, address: str, username: str) -> None:
    vault = loaded(path)
    sealed = vault.seal(*WHOSE, PASSWORD)
    with pytest.raises(UnusableError) as raised:
        vault.unseal(address, username, sealed)
    assert LOST in raised.value.detail
    assert PASSWORD not in raised.value.detail


def test_key_is_created_on_first_use_in_a_private_file(path: Path) -> None:
    vault = loaded(path)
    assert not path.parent.exists()
    vault.seal(*WHOSE, PASSWORD)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]
    key = path.read_bytes()
    loaded(path).seal(*WHOSE, PASSWORD)
    assert path.read_bytes() == key


def test_lost_key_invalidates_only_old_passwords(path: Path) -> None:
    old = loaded(path).seal(*WHOSE, PASSWORD)
    path.unlink()
    vault = loaded(path)
    with pytest.raises(UnusableError, match=r"^its password is unusable$") as raised:
        vault.unseal(*WHOSE, old)
    assert LOST in raised.value.detail
    new = vault.seal(*WHOSE, PASSWORD)
    assert vault.unseal(*WHOSE, new) == PASSWORD
    assert loaded(path).unseal(*WHOSE, new) == PASSWORD


def test_invalid_key_file_is_not_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"half a k")
    vault = loaded(path)
    assert "holds no key" in caplog.text
    with pytest.raises(StoreError, match="holds no key: remove it"):
        vault.seal(*WHOSE, PASSWORD)
    assert path.read_bytes() == b"half a k"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602], ids=oct)
def test_corrects_the_mode_of_the_key_file(
    path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    sealed = loaded(path).seal(*WHOSE, PASSWORD)
    path.chmod(mode)
    for _ in range(2):
        assert loaded(path).unseal(*WHOSE, sealed) == PASSWORD
        assert path.stat().st_mode & 0o777 == 0o600
    [record] = caplog.records
    warning = "a file was accessible to other users: set its mode to 0600"
    assert record.getMessage() == f"{warning} path={path}"


def test_another_key_unseals_nothing(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    loaded(other).seal(*WHOSE, PASSWORD)
    sealed = loaded(path).seal(*WHOSE, PASSWORD)
    path.write_bytes(other.read_bytes())
    for text in (sealed, b"", b"no token", sealed[:-1]):
        with pytest.raises(UnusableError):
            loaded(path).unseal(*WHOSE, text)


def test_restores_a_deleted_key_from_memory(path: Path) -> None:
    vault = loaded(path)
    old = vault.seal(*WHOSE, PASSWORD)
    path.unlink()
    new = vault.seal(*WHOSE, "another")
    again = loaded(path)
    assert again.unseal(*WHOSE, old) == PASSWORD
    assert again.unseal(*WHOSE, new) == "another"


def test_reports_an_unusable_key(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir(parents=True)
    vault = loaded(path)
    assert f"cannot use the key {path}: Is a directory" in caplog.text
    with pytest.raises(StoreError, match="Is a directory"):
        vault.seal(*WHOSE, PASSWORD)
    path.rmdir()
    path.parent.rmdir()
    path.parent.write_text("a file")
    with pytest.raises(StoreError, match="cannot use the key"):
        vault.seal(*WHOSE, PASSWORD)
