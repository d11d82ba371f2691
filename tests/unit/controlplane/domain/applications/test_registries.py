"""Rules of registries: prefixes that two of them would share, and passwords that are kept."""

from dataclasses import replace

import pytest

from controlplane.domain.applications.registries import Registry, TakenPrefix

STORED = Registry(
    "games",
    "games.example",
    ("alias.example",),
    username="puller",
    sealed=b"sealed",
    auth_hosts=("auth.example", "other.example"),
    private=True,
    ca="pem",
)


@pytest.mark.parametrize(
    ("prefixes", "taken"),
    [
        (("other.example",), None),
        (("GAMES.example",), "GAMES.example"),
        (("other.example", "Alias.Example"), "Alias.Example"),
    ],
)
def test_prefix_of_another_registry_is_taken_regardless_of_case(
    prefixes: tuple[str, ...], taken: str | None
) -> None:
    wanted = Registry("new", prefixes[0], prefixes[1:])
    expected = TakenPrefix(taken, "games") if taken else None
    assert wanted.taken_prefix([STORED]) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"address": "Games.Example"},
        {"aliases": ()},
        {"auth_hosts": ("auth.example",)},
        {"private": False},
        {"name": "renamed"},
    ],
    ids=str,
)
def test_password_is_kept_where_it_reaches_no_other_host(change: dict[str, object]) -> None:
    assert STORED.may_pass_on_password(replace(STORED, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"address": "other.example"},
        {"username": "another"},
        {"ca": "another"},
        {"auth_hosts": ("auth.example", "new.example")},
    ],
    ids=str,
)
def test_password_is_not_kept_where_it_may_reach_another_host(change: dict[str, object]) -> None:
    assert not STORED.may_pass_on_password(replace(STORED, **change))  # type: ignore[arg-type]


def test_password_is_not_kept_for_a_registry_that_becomes_private() -> None:
    public = replace(STORED, private=False)
    assert not public.may_pass_on_password(STORED)


def test_registry_without_a_password_passes_none_on() -> None:
    without = replace(STORED, sealed=b"")
    assert not without.may_pass_on_password(STORED)
