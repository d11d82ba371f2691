"""Tokens, and the order and shape of answers."""

import pytest

from controlplane.domain import tokens
from controlplane.domain.errors import Reason
from controlplane.http.errors import STATUSES
from controlplane.storage.tables.fleet import regions
from tests.support.controlplane.system import System, assert_error
from tests.support.controlplane.transactions import fail_once, intercept


async def test_all_invalid_tokens_get_the_same_answer(system: System) -> None:
    good = system.tokens["alice"]
    bad = ["x", good[:-1], good[:-1] + ("0" if good[-1] != "0" else "1"), tokens.mint().text]
    for column in ("expire_ms", "revoked_ms"):
        bad.append(await system.make_token(name=column, scopes=["session:read"]))
        await system.rows(f"UPDATE token SET {column}=1 WHERE name=?", column)
    bodies = set()
    for token in bad:
        answer = await system.call("GET", "/session", token=token)
        assert_error(answer, 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        bodies.add((answer.json["message"], answer.json["details"]))
    assert len(bodies) == 1


async def test_the_header_is_read_strictly(system: System) -> None:
    good = system.tokens["alice"]
    url = system.control_plane.base_url + "/session"
    cases = [
        ([], 401),
        ([("Authorization", good)], 401),
        ([("Authorization", f"Basic {good}")], 401),
        ([("Authorization", f"Bearer {good}")] * 2, 401),
        ([("Authorization", f"bEARER {good}")], 200),
    ]
    for headers, status in cases:
        async with system.http.get(url, headers=headers) as response:
            assert response.status == status


async def test_only_the_owner_can_read_files(system: System) -> None:
    state = system.folder / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}


def test_every_reason_has_a_status() -> None:
    assert set(STATUSES) == set(Reason)


async def test_an_unexpected_failure_leaks_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    intercept(monkeypatch, regions, fail_once(RuntimeError("secret inner text")))
    answer = await system.call("GET", "/region")
    assert_error(answer, 500)
    assert "secret" not in answer.text
    assert answer.json["identifier"] in caplog.text
