"""Known secrets, the requests that carry them to every route, and where they may be found."""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controlplane.api.operations.operation import Route
from controlplane.api.routes import ROUTES
from controlplane.domain.access import tokens as token_format
from tests.controlplane.body_models import EXAMPLES, REGISTRY_PASSWORD
from tests.controlplane.quoting_registry import CHALLENGES, WAYS
from tests.support.controlplane.raw_http import RawAnswer, ask
from tests.support.controlplane.system import APPLICATION, eventually
from tiltyard.contract import Capability

ENV = "env-canary-7c1d9a40b2"  # The value of a session's own variable
FILE_PASSWORD = "pw-91b3d2aa-settings-canary"
"""The password in the settings file, of the registry `quoting`."""
STRAY = token_format.mint().text  # A token of no account, sent where no token belongs
KEPT = "initial-tokens.json"
PARAMETERS = {
    "id": "s-1",
    "name": "game",
    "image": "game",
    "region": "local",
    "location": "local",
    "version": "v1",
    "file": "start.js",
    "agent": "a0",
    "account": "alice",
    "nodePool": "made-1",
    "registry": "made-1",
}
QUERIES = {
    "/session": "all=true&location=local&filter[stage]=final",
    "/logs": "id=s-1",
    "/artifacts": "session=ended&path=/data",
    "/operator/placement": "account=alice&image=game&location=local",
}


class Secret:
    """A token, and what reveals its secret."""

    def __init__(self, text: str) -> None:
        self.text = text
        secret = text.split("_")[2][:64]
        self.parts = tuple(secret[at : at + 16].encode() for at in range(0, 64, 16))
        digest = hashlib.sha256(secret.encode())
        whole = hashlib.sha256(text.encode())
        self.hash = digest.digest()
        self.made_of_it = (
            bytes.fromhex(secret),
            digest.hexdigest().encode(),
            whole.hexdigest().encode(),
        )

    def is_in(self, data: bytes) -> bool:
        return any(trace in data.lower() for trace in (*self.parts, *self.made_of_it))


def _other_traces() -> Iterator[bytes]:
    """Yield the beginnings of other secrets: variables of sessions, logins of registries."""
    yield ENV.encode()
    for password in (REGISTRY_PASSWORD, FILE_PASSWORD):
        yield from (password[:11].encode(), base64.b64encode(f"robot:{password}".encode())[:16])


def _with_tokens(value: Any) -> Any:
    """Replace every string of a body by a token."""
    if isinstance(value, dict):
        return {key: _with_tokens(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_tokens(item) for item in value]
    return STRAY if isinstance(value, str) else value


class Tour:
    """Sends all requests and keeps the answers."""

    def __init__(self, base_url: str, alice: str, operator: str) -> None:
        self._port = int(base_url.rpartition(":")[2])
        self._alice = alice
        self._operator = operator
        self.answers: list[tuple[bytes, RawAnswer]] = []

    async def go(self) -> None:
        """Create objects, then send the requests of every route."""
        await self._fill()
        for route in ROUTES:
            await self._try(route)
        await self._have_passwords_quoted()
        for session in (await self.ask("GET", "/session?all=1")).json["sessions"]:
            await self.ask("DELETE", f"/session/{session['id']}")

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *headers: str,
        bearer: str | None = None,
        version: str = "1.1",
    ) -> RawAnswer:
        """Send a body, as JSON unless it is text."""
        own = self._operator if "/operator/" in target else self._alice
        lines = [f"{method} {target} HTTP/{version}", "Host: a", *headers]
        lines.append(f"Authorization: {bearer or f'Bearer {own}'}")
        text = body if isinstance(body, str) else json.dumps(body)
        if body is None:
            text = ""
        lines.append(f"Content-Length: {len(text.encode())}")
        data = "\r\n".join([*lines, "", text]).encode()
        answer = await ask(self._port, data)
        assert answer is not None, data
        self.answers.append((data, answer))
        return answer

    async def _fill(self) -> None:
        allowed = {"capabilities": [*Capability]}
        assert (await self.ask("PUT", "/operator/node-pool/default", allowed)).status == 204
        await self.ask("POST", "/application", APPLICATION)
        await self.ask("POST", "/application/game/tags", {"tag": "v1"})

        async def pulled() -> bool:
            return bool((await self.ask("GET", "/tag/local/game/v1")).json["exists"])

        await eventually(pulled)
        env = {"CANARY": ENV, "OTHER": f"{ENV} and more"}
        body: dict[str, Any] = {"location": "local", "image": "game", "env": env}
        assert (await self.ask("POST", "/session", body | {"id": "ended"})).status == 201
        await self.ask("DELETE", "/session/ended")
        for wrong in ({"{}": "x"}, {"TILTYARD_HOST": ENV}, {"OK": [ENV]}, {"": ENV}):
            await self.ask("POST", "/session", body | {"env": wrong | {"CANARY": ENV}})
        for more in ({"env": ENV}, {"image": "unknown"}, {"ports": [{"container": 1, "host": 1}]}):
            await self.ask("POST", "/session", body | more)

    async def _try(self, route: Route) -> None:
        """Call a route correctly, then with tokens where none belongs."""
        method = route.method
        path = route.path.format_map(PARAMETERS)
        query = QUERIES.get(route.path, "")
        body = None if route.handler.body is None else EXAMPLES[route.handler.body]
        answer = await self.ask(method, f"{path}?{query}", body)
        # The object may be gone, or another may have its name.
        assert answer.status in {route.handler.status, 404, 409}, answer.body
        parent = path.rpartition("/")[0]
        names = [pair.partition("=")[0] for pair in query.split("&")]
        for target in (
            *(f"{parent}/{wrong}" for wrong in (STRAY, STRAY[:50], f"x{STRAY}?x")),
            f"/{STRAY}{path}",
            f"{path}?token={STRAY}&{STRAY}=1&filter[{STRAY}]=1&playerCount[{STRAY}]=1",
            f"{path}?" + "&".join(f"{name}={STRAY}" for name in (*names, "all", "filterNot")),
        ):
            await self.ask(method, target, body)
        if body is not None:
            wrong_places = {STRAY: 1, "labels": {STRAY: 1}, "env": {STRAY: [1]}}
            for wrong in (_with_tokens(body), body | wrong_places, STRAY, f'"{STRAY}'):
                await self.ask(method, path, wrong)
        for name in ("Cookie", "X-Token", "Expect", STRAY, f"X {STRAY}", "X-Forwarded-For"):
            await self.ask(method, path, body, f"{name}: {STRAY}")
        for bearer in (
            f"Bearer {self._alice[:50]}",
            f"Bearer {self._alice[:84]}00000000",
            self._alice,
            f"Basic {self._alice}",
            f"Bearer {self._alice}x",
            f"Bearer {STRAY}",
            f"Bearer x {self._alice}",
        ):
            await self.ask(method, path, body, bearer=bearer)
        await self.ask(method, path, body, version="3")
        await self.ask(method, path, body, f"Authorization: Bearer {self._alice}")

    async def _have_passwords_quoted(self) -> None:
        listed = (await self.ask("GET", "/operator/registry")).json["registries"]
        (address,) = (entry["address"] for entry in listed if entry["name"] == "quoting")
        address = address.replace("127.0.0.1", "localhost")
        quoted = {"address": address, "username": "robot", "password": REGISTRY_PASSWORD}
        assert (await self.ask("PUT", "/operator/registry/quoted", quoted)).status == 204
        for name in ("quoting", "quoted"):
            body = APPLICATION | {"name": name, "registry": name}
            assert (await self.ask("POST", "/application", body)).status == 201
            for _ in range(len(WAYS) * len(CHALLENGES)):
                enabled = await self.ask("POST", f"/application/{name}/tags", {"tag": "v1"})
                found = await self.ask("GET", f"/application/{name}/tags/available")
                assert 204 not in {enabled.status, found.status}
        assert b"passwordGiven" in (await self.ask("GET", "/operator/audit?kind=registry")).body

    @property
    def secrets(self) -> list[Secret]:
        """The tokens of the callers, and those that were created."""
        made = [answer.json["token"] for _, answer in self.answers if _has_token(answer)]
        return [Secret(text) for text in {self._alice, self._operator, *made}]

    def check_answers(self) -> None:
        """Check that answers repeat at most what the caller put into path, query or body."""
        secrets = self.secrets
        others = (*Secret(STRAY).made_of_it, *_other_traces())
        for sent, answer in self.answers:
            shown = repr(answer.headers).encode() + answer.body
            new = answer.json["token"] if _has_token(answer) else ""
            assert not any(secret.is_in(shown) for secret in secrets if secret.text != new), sent
            assert not any(trace in shown for trace in others), sent


def _has_token(answer: RawAnswer) -> bool:
    return answer.status == 201 and "token" in answer.json


def check_nothing_in(data: bytes, secrets: list[Secret], where: object) -> None:
    assert not any(secret.is_in(data) for secret in secrets), where
    assert not any(trace in data for trace in _other_traces()), where


def check_state(database: Path, secrets: list[Secret]) -> None:
    """Check every row and every byte of every file; the database has the hashes of tokens."""
    db = sqlite3.connect(database)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
        for row in db.execute(f"SELECT * FROM {table}"):
            check_nothing_in(repr(row).encode(), secrets, (table, row))
    kept = dict(db.execute("SELECT secret_hash, typeof(secret_hash) FROM token"))
    db.close()
    assert set(kept.values()) == {"blob"}
    assert kept.keys() <= {secret.hash for secret in secrets}
    assert len(kept) > 3
    found = [path for path in database.parent.rglob("*") if path.is_file()]
    lasting = [path for path in found if path.name != KEPT and path.suffix != ".draft"]
    check_files(secrets, *lasting)


def check_files(secrets: list[Secret], *paths: Path) -> None:
    for path in paths:
        check_nothing_in(path.read_bytes(), secrets, path)
