from typing import Any

import pytest

from agent.client.agent_client import ClientError, choose


def session(internal_id: str, name: str, account: str = "acme", *, live: bool = True) -> Any:
    return {
        "internal_id": internal_id,
        "identity": {"account": account, "session_id": name},
        "state": "STATE_RUNNING" if live else "STATE_EXITED",
    }


ONE = session("aa", "m1")


@pytest.mark.parametrize(
    ("sessions", "given", "message"),
    [
        ([ONE, session("ab", "m2", live=False)], "a", r"any of: aa \('acme', 'm1'\), ab \("),
        ([ONE, session("ab", "m2", "evil", live=False)], "a", "'a' may be any of"),
        ([ONE, session("bb", "m1", "other", live=False)], "m1", "'m1' may be any of"),
        ([ONE, session("bb", "m1")], "m1", "'m1' may be any of"),
        ([session(f"a{number}", f"m{number}") for number in range(9)], "a", r"and 4 more$"),
        *(([ONE], given, "there is no session") for given in ("", "m", "M1", "1")),
    ],
)
def test_rejects_ambiguous_or_incomplete_id(sessions: Any, given: str, message: str) -> None:
    with pytest.raises(ClientError, match=message):
        choose(sessions, given)


def test_selects_the_internal_id_or_the_live_or_newest_session_of_an_id() -> None:
    assert choose([session("b", "aa", "evil"), ONE], "aa") == ONE
    ended = [session("aa", "m1", live=False), session("bb", "m1", live=False)]
    assert choose(ended, "m1")["internal_id"] == "bb"
    assert choose([session("cc", "m1"), *ended], "m1")["internal_id"] == "cc"
