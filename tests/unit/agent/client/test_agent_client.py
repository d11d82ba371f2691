from typing import Any

import pytest

from agent.client.agent_client import ClientError, choose


def session(internal_id: str, name: str, account: str = "acme", *, live: bool = True) -> Any:
    return {
        "internal_id": internal_id,
        "identity": {"account": account, "session_id": name},
        "state": "STATE_RUNNING" if live else "STATE_EXITED",
    }


def test_complete_internal_id_selects_its_session() -> None:
    sessions = [session("b", "aa", "evil"), session("aa", "m1")]
    assert choose(sessions, "aa")["identity"]["session_id"] == "m1"


@pytest.mark.parametrize("other", ["acme", "evil"])
def test_rejects_ambiguous_id(other: str) -> None:
    sessions = [session("aa", "m1"), session("ab", "m2", other, live=False)]
    with pytest.raises(ClientError, match=r"'a' may be any of: aa \('acme', 'm1'\), ab \("):
        choose(sessions, "a")


@pytest.mark.parametrize("other", [session("bb", "m1", "other", live=False), session("bb", "m1")])
def test_rejects_id_of_two_accounts_or_live_sessions(other: Any) -> None:
    with pytest.raises(ClientError, match="'m1' may be any of"):
        choose([session("aa", "m1"), other], "m1")


def test_limits_listed_sessions() -> None:
    sessions = [session(f"a{number}", f"m{number}") for number in range(9)]
    with pytest.raises(ClientError, match=r"and 4 more$"):
        choose(sessions, "a")


@pytest.mark.parametrize("given", ["", "m", "M1", "1"])
def test_matches_only_complete_client_ids(given: str) -> None:
    with pytest.raises(ClientError, match="there is no session"):
        choose([session("aa", "m1")], given)


def test_selects_live_or_newest_session_of_an_id() -> None:
    ended = [session("aa", "m1", live=False), session("bb", "m1", live=False)]
    assert choose(ended, "m1")["internal_id"] == "bb"
    assert choose([session("cc", "m1"), *ended], "m1")["internal_id"] == "cc"
