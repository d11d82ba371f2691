"""A control plane that is killed by SIGKILL at each of its fail points.

After a restart each request was carried out once or not at all, and a retry gets a proper answer.
`SCENARIOS` maps each fail point to the code that reaches it.
docker/test_killed_control_plane.py has starts on a real engine.
"""

import asyncio
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent.rpc.identity import FILE, Identity
from controlplane.domain.steps import (
    AUTHORITY_STEPS,
    CLAIM_STEPS,
    PLAYER_STEPS,
    START_STEPS,
    STEPS,
    STOP_STEPS,
    TAG_STEPS,
    TOKEN_STEPS,
)
from tests.flow.enrolled import enrolled
from tests.flow.outlived import NO_ANSWER, REPOSITORY, Outlived
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.system import APPLICATION, eventually
from tests.support.deployment import PATIENT
from tests.support.harness import free_port

ACCOUNT = "default"
ID = "match"
KEY = (ACCOUNT, ID)
START = ("POST", "/session", {"location": "local", "image": "game", "id": ID})
STOP = ("DELETE", f"/session/{ID}", None)
JOIN = ("PUT", "/session/player/join", {"session": ID, "players": ["p", "q"]})
LEAVE = ("DELETE", "/session/player/leave", {"session": ID, "players": ["q"]})
TAG = ("POST", "/application/game/tags", {"tag": "v1"})
TOKEN = ("POST", "/token", {"name": "friend", "scopes": ["session:read"]})

AT_ONCE = {"stop.answered"}  # Steps that `make test` has time for
LATE = {"claim.unconfirmed", "claim.confirmed"}
"""Steps after the answer, which may have left the process."""
NOTHING_CAME_OF_IT = {"start.reserved", "start.attempted", "tag.resolved"}


class Killed(Outlived):
    """A control plane that is killed once, at a fail point."""

    async def ask(self, method: str, path: str, body: Any, account: str = ACCOUNT) -> Any:
        return await self.call(method, path, account=account, body=body)

    async def is_killed_by(
        self,
        method: str,
        path: str,
        body: Any,
        account: str = ACCOUNT,
        *,
        may_answer: int | None = None,
    ) -> None:
        """Send a request, expect no answer or this one, and restart until all hosts report."""
        try:
            status, _ = await self.ask(method, path, body, account)
        except NO_ANSWER:
            pass
        else:
            assert status == may_answer
        await self.killed()
        await self.serve()
        for host in self.hosts:
            await self.is_connected(host.name)

    async def is_connected(self, name: str) -> None:
        """Wait until a host is ready; a control plane also serves without its hosts."""
        await self.until(f"/operator/agent/{name}", lambda shown: shown["state"] == "ready")

    async def becomes(self, status: str) -> None:
        await self.until(f"/session/{ID}", lambda shown: shown["status"] == status, ACCOUNT)

    async def joined(self, name: str) -> WholeAgent:
        """Enrol one more host and wait until it is ready."""
        host = WholeAgent(self.process.folder, name, rpc_listen=f"127.0.0.1:{free_port()}")
        self._stack.push_async_callback(host.stop)
        await host.start()
        _, made = await self.call("POST", "/operator/enrolment-token", body={"region": "local"})
        await enrolled(host, f"https://{self._settings['enrol_listen']}", made["token"])
        await self.is_connected(name)
        return host

    async def play(self) -> None:
        """Start a session."""
        await self.make_game(ACCOUNT)
        status, answer = await self.ask(*START)
        assert status == 201, answer

    async def described(self) -> dict[str, Any]:
        status, answer = await self.call("GET", f"/session/{ID}", account=ACCOUNT)
        assert status == 200, answer
        return dict(answer)


async def while_it_starts(killed: Killed, step: str) -> None:
    await killed.make_game(ACCOUNT)
    await killed.is_killed_by(*START)
    status, _ = await killed.ask(*START)
    assert status == (201 if step in NOTHING_CAME_OF_IT else 409)
    assert (await killed.described())["status"] == "running"
    assert killed.witness.running == [KEY]


async def while_it_claims(killed: Killed, step: str) -> None:
    await killed.make_game(ACCOUNT)
    assert (await killed.ask("PUT", "/warm-pool/game/local", {"size": 2}))[0] == 204

    def is_full(shown: Any) -> bool:
        return bool(shown["warmPools"][0]["ready"] == 2)

    await killed.until("/warm-pool", is_full, ACCOUNT)
    await killed.is_killed_by(*START, may_answer=201 if step in LATE else None)
    if step == "claim.taken":
        await killed.until("/warm-pool", is_full, ACCOUNT)
        assert (await killed.ask(*START))[0] == 201
    await killed.becomes("running")
    assert (await killed.ask(*START))[0] == 409
    await killed.until("/warm-pool", is_full, ACCOUNT)
    _, answer = await killed.call("GET", "/session?all=1", account=ACCOUNT)
    assert [session["id"] for session in answer["sessions"]] == [ID]
    assert len(killed.witness.running) == 3


async def while_it_stops(killed: Killed, _step: str) -> None:
    await killed.play()
    await killed.is_killed_by(*STOP)
    await killed.becomes("exited")
    assert killed.witness.running == []
    assert (await killed.ask(*STOP))[0] == 409
    assert (await killed.ask(*START))[0] == 409


async def while_a_tag_is_enabled(killed: Killed, step: str) -> None:
    assert (await killed.ask("POST", "/application", APPLICATION))[0] == 201
    killed.registry.push(REPOSITORY, "v1")
    await killed.is_killed_by(*TAG)
    if step in NOTHING_CAME_OF_IT:
        assert not await killed.is_pulled("v1", ACCOUNT)
        assert (await killed.ask(*TAG))[0] == 204
    await eventually(lambda: killed.is_pulled("v1", ACCOUNT))
    assert (await killed.ask(*TAG))[0] == 204
    assert (await killed.ask(*START))[0] == 201


async def while_a_token_is_made(killed: Killed, _step: str) -> None:
    await killed.is_killed_by(*TOKEN)
    status, _ = await killed.ask(*TOKEN)
    assert status == 409, "the text of the token with this name is lost"
    [lost] = await _tokens(killed)
    assert (await killed.call("DELETE", f"/operator/token/{lost}"))[0] == 200
    assert (await killed.ask(*TOKEN))[0] == 201


async def while_a_token_is_revoked(killed: Killed, _step: str) -> None:
    status, answer = await killed.ask(*TOKEN)
    assert status == 201
    killed.process.tokens["friend"] = answer["token"]
    [made] = await _tokens(killed)
    assert (await killed.call("GET", "/session", account="friend"))[0] == 200
    await killed.is_killed_by("DELETE", f"/operator/token/{made}", None, account="")
    assert (await killed.call("GET", "/session", account="friend"))[0] == 401
    status, answer = await killed.call("DELETE", f"/operator/token/{made}")
    assert status == 200
    assert answer == {"revoked": []}


async def while_players_join(killed: Killed, _step: str) -> None:
    await killed.play()
    await killed.is_killed_by(*JOIN)
    assert (await killed.described())["players"] == {"joined": ["p", "q"], "joinedCount": 2}
    assert await killed.ask(*JOIN) == (200, {"count": 2, "players": ["p", "q"]})


async def while_players_leave(killed: Killed, _step: str) -> None:
    await killed.play()
    assert (await killed.ask(*JOIN))[0] == 200
    await killed.is_killed_by(*LEAVE)
    assert (await killed.described())["players"] == {"joined": ["p"], "joinedCount": 1}
    assert await killed.ask(*LEAVE) == (200, {"count": 1, "players": ["q"]})


async def while_the_authority_is_replaced(killed: Killed, step: str) -> None:
    authority = "/operator/authority"

    def has_moved(shown: Any) -> bool:
        return bool(shown["moved"] == 1)

    host = await killed.joined("far")
    _, before = await killed.call("GET", authority)
    if step == "authority.rotated":
        await killed.is_killed_by("POST", f"{authority}/rotate", {}, "")
    elif step == "authority.finished":
        assert (await killed.ask("POST", f"{authority}/rotate", {}, ""))[0] == 200
        await killed.until(authority, has_moved)
        await killed.is_killed_by("POST", f"{authority}/finish", {}, "")
    else:
        with suppress(*NO_ANSWER):  # the host may have moved before the answer
            assert (await killed.ask("POST", f"{authority}/rotate", {}, ""))[0] == 200
        await killed.killed()
        await killed.serve()
    # The rotation continues by itself from any step.
    await killed.until(authority, has_moved)
    status_code, answer = await killed.ask("POST", f"{authority}/finish", {}, "")
    assert status_code == 200
    assert answer["former"] is None
    assert answer["waiting"] == []
    assert answer["current"]["fingerprint"] != before["current"]["fingerprint"]
    identity = await asyncio.to_thread(Identity.read, host.config.state_dir / FILE)
    assert identity is not None
    current = ssl.PEM_cert_to_DER_cert(identity.trusted.decode())
    assert hashlib.sha256(current).hexdigest() == answer["current"]["fingerprint"]


async def _tokens(killed: Killed) -> list[str]:
    """The ids of the valid tokens with the requested name."""
    _, answer = await killed.call("GET", f"/operator/token?account={ACCOUNT}")
    return [token["id"] for token in answer["tokens"] if token["name"] == "friend"]


SCENARIOS: dict[str, Callable[[Killed, str], Awaitable[None]]] = {
    **dict.fromkeys(START_STEPS, while_it_starts),
    **dict.fromkeys(CLAIM_STEPS, while_it_claims),
    **dict.fromkeys(STOP_STEPS, while_it_stops),
    **dict.fromkeys(TAG_STEPS, while_a_tag_is_enabled),
    "token.made": while_a_token_is_made,
    "token.revoked": while_a_token_is_revoked,
    "players.joined": while_players_join,
    "players.left": while_players_leave,
    **dict.fromkeys(AUTHORITY_STEPS, while_the_authority_is_replaced),
}


def _killed_at(*steps: str) -> pytest.MarkDecorator:
    marked = [(step, () if step in AT_ONCE else pytest.mark.slow) for step in steps]
    return pytest.mark.parametrize("step", [pytest.param(step, marks=m) for step, m in marked])


@_killed_at(*START_STEPS, *AUTHORITY_STEPS)
async def test_f38_what_a_control_plane_was_killed_over_is_done_once_or_not_at_all(
    tmp_path: Path, step: str
) -> None:
    await _play_through(tmp_path, step)


@_killed_at(*CLAIM_STEPS)
async def test_f50_a_claim_whose_control_plane_is_killed_is_one_session_or_none(
    tmp_path: Path, step: str
) -> None:
    await _play_through(tmp_path, step)


@_killed_at(*STOP_STEPS)
async def test_f51_a_stop_whose_control_plane_is_killed_is_carried_out(
    tmp_path: Path, step: str
) -> None:
    await _play_through(tmp_path, step)


@_killed_at(*TAG_STEPS, *TOKEN_STEPS, *PLAYER_STEPS)
async def test_f52_what_is_committed_counts_though_no_memory_had_it(
    tmp_path: Path, step: str
) -> None:
    await _play_through(tmp_path, step)


async def _play_through(folder: Path, step: str) -> None:
    settings = {"failpoint": f"{step}:kill", "enrol_listen": f"127.0.0.1:{free_port()}", **PATIENT}
    async with Killed(folder, **settings) as killed:
        await SCENARIOS[step](killed, step)


def test_every_step_is_of_a_fault() -> None:
    assert set(SCENARIOS) == set(STEPS)
