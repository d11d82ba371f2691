"""What settings point to: folders, keys, addresses, and ports that two want."""

import os
from pathlib import Path

import pytest

from tiltyard.runtime.settings import environment_checks


def test_a_folder_is_one_or_can_be_made(tmp_path: Path) -> None:
    assert list(environment_checks.folder("k", tmp_path)) == []
    assert list(environment_checks.folder("k", tmp_path / "a" / "b")) == []
    (tmp_path / "file").touch()
    [mistake] = environment_checks.folder("k", tmp_path / "file" / "b")
    assert (mistake.text, mistake.is_warning) == (f"{tmp_path / 'file'} is no folder", False)


def test_a_folder_that_this_user_may_not_write_in_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may everywhere
    [mistake] = environment_checks.folder("k", tmp_path / "a")
    assert (mistake.text, mistake.is_warning) == (f"this user may not write in {tmp_path}", True)


@pytest.mark.parametrize(("mode", "told"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o602, 1)])
def test_a_key_is_not_for_everybody(tmp_path: Path, mode: int, told: int) -> None:
    key = tmp_path / "key"
    key.touch()
    key.chmod(mode)
    assert len(list(environment_checks.private_key("k", key))) == told
    assert list(environment_checks.private_key("k", tmp_path / "absent")) == []


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("", 0),
        ("0.0.0.0", 0),
        ("::", 0),
        ("127.0.0.1", 0),
        ("localhost", 0),
        ("192.0.2.1", 1),
        ("192.0.2", 1),
        ("x", 1),
    ],
)
def test_an_address_is_one_of_this_machine(host: str, told: int) -> None:
    found = list(environment_checks.address("k", host))
    assert [mistake.is_warning for mistake in found] == [True] * told


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (("127.0.0.1", 80), True),
        (("", 80), True),
        (("0.0.0.0", 80), True),
        (("::", 80), True),
        (("localhost", 80), True),
        (("127.0.0.2", 80), False),
        (("::1", 80), False),
        (("elsewhere", 80), False),
        (("127.0.0.1", 81), False),
    ],
)
def test_two_listeners_do_not_have_one_port(other: tuple[str, int], *, told: bool) -> None:
    found = list(environment_checks.listeners({"a": ("127.0.0.1", 80), "b": other}))
    assert [mistake.key for mistake in found] == [("b",)] * told


def test_each_family_has_its_ports() -> None:
    assert list(environment_checks.listeners({"a": ("0.0.0.0", 80), "b": ("::1", 80)})) == []
    [mistake] = environment_checks.listeners({"a": ("::", 80), "b": ("::1", 80)})
    assert mistake.key == ("b",)


def test_any_free_port_is_no_port_of_another() -> None:
    assert list(environment_checks.listeners({"a": ("", 0), "b": ("", 0)})) == []
