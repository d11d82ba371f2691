"""Invariants for callers of the API: I6, I7, I9 and I10."""

from collections.abc import Sequence
from urllib.parse import quote

from agent.domain.sessions.session import Session
from tests.faults.invariants import beyond_quota
from tests.faults.ledger import ledger
from tests.support.api_client import ApiClient
from tests.support.harness import ControlPlaneProcess

_ENDED = {"exited", "dead"}


def assert_callers_served(control_plane: ControlPlaneProcess, sessions: Sequence[Session]) -> None:
    """Check that responses are still true, and that accounts are isolated and within their limits.

    `sessions` are those that the hosts of this control plane have recorded.
    """
    if not ledger.wants_checks:
        return
    if not control_plane.process.is_running:
        control_plane.kill()
        control_plane.start()
    for account, made in control_plane.made.items():
        client = control_plane.client(account)
        others = [name for name in control_plane.ACCOUNTS if name != account]
        assert_durable(client, account, made)
        for other in others:
            theirs = set(control_plane.made[other])
            _assert_unseen(control_plane.client(other), set(made) - theirs)
    _assert_quotas_kept(control_plane, sessions)
    _assert_revoked_tokens_refused(control_plane)
    ledger.checked |= {6, 7, 9, 10}


def assert_durable(client: ApiClient, account: str, made: list[str]) -> None:
    """Check that an account's known sessions are visible, and that no id has two live ones."""
    for session_id in made:
        status = client.get(f"/session/{quote(session_id, safe='')}").status
        assert status == 200, f"I6: session {session_id} of {account} was made, and is {status}"
    shown = [each["id"] for each in client.sessions()]
    assert len(shown) == len(set(shown)), (
        f"I7: two live sessions of {account} have one id: {shown}"
    )


def _assert_unseen(client: ApiClient, ids: set[str]) -> None:
    seen = {each["id"] for each in client.sessions()}
    assert not seen & ids, f"I10: {seen & ids} are others' sessions"
    for session_id in ids:
        status = client.get(f"/session/{quote(session_id, safe='')}").status
        assert status == 404, f"I10: {session_id} is another's session, and the answer is {status}"


def _assert_quotas_kept(control_plane: ControlPlaneProcess, sessions: Sequence[Session]) -> None:
    most = {}
    for account in control_plane.operator.get("/operator/account").expect(200).json()["accounts"]:
        for resource, limit in account["quota"].items():
            used = account["usage"][resource]
            assert limit is None or used <= limit, f"I9: {account['name']} uses {used} {resource}"
        if account["quota"]["sessions"] is not None:
            most[account["name"]] = account["quota"]["sessions"]
    assert beyond_quota(sessions, most) == []


def _assert_revoked_tokens_refused(control_plane: ControlPlaneProcess) -> None:
    asked = {"name": "to-be-revoked", "scopes": ["session:read"]}
    token = control_plane.client().post("/token", asked).expect(201).json()["token"]
    bearer = ApiClient(control_plane.base_url, token)
    bearer.get("/session").expect(200)
    control_plane.operator.request("DELETE", f"/operator/token/{token.split('_')[1]}").expect(200)
    status = bearer.get("/session").status
    assert status == 401, f"I10: a revoked token is answered with {status}"
