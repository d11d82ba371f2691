"""Known secrets, the requests that carry them rightly and wrongly, and where to look for them."""

import base64
import hashlib
import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from controlplane.api.routes import ROUTES
from controlplane.domain import tokens as token_format
from tests.controlplane.quoting_registry import CHALLENGES, WAYS
from tests.fuzz import bodies
from tests.fuzz.draft import Draft, Route, with_tokens
from tests.fuzz.generator import valid
from tests.fuzz.templates import (
    DOOMED,
    EDITED,
    ENDED,
    LIVE,
    REGISTRY_PASSWORD,
    SHOWN,
    TEMPLATES,
)
from tests.support.controlplane.raw_http import RawAnswer, ask
from tests.support.controlplane.system import APPLICATION, eventually

ENV = "env-canary-7c1d9a40b2"
"""The value of a session's own variable."""
FILE_PASSWORD = "pw-91b3d2aa-settings-canary"
"""The password that the settings file names, for the registry `quoting`."""
LOGGED_IN = ("quoting", "quoted")
"""Registries, and applications of the same names: the second is made by the API."""
STRAY = token_format.mint().text
"""A token that is no account's, for wherever a token does not belong."""
KEPT = "initial-tokens.json"


class First(random.Random):
    """No chance at all: of what a template leaves open, the first."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


class Secret:
    """A token, and all by which a trace of its secret is known."""

    def __init__(self, text: str) -> None:
        self.text = text
        secret = text.split("_")[2][:64]
        digest = hashlib.sha256(secret.encode())
        self.hash = digest.digest()
        whole = hashlib.sha256(text.encode())
        self.parts = tuple(secret[at : at + 16].encode() for at in range(0, 64, 16))
        self.traces = (
            *self.parts,
            bytes.fromhex(secret),
            *(found.hexdigest().encode() for found in (digest, whole)),
        )

    def is_in(self, data: bytes) -> bool:
        return any(trace in data.lower() for trace in self.traces)


def other_traces() -> tuple[bytes, ...]:
    """Give what else may be nowhere: a session's variables, and how to log in to registries."""
    found = [ENV.encode()]
    for password in (REGISTRY_PASSWORD, FILE_PASSWORD):
        # Begins, since what quotes them may break off.
        found += [password[:11].encode(), base64.b64encode(f"robot:{password}".encode())[:16]]
    return tuple(found)


def _everything(secret: bytes, value: Any) -> Any:
    """Put a token for every string of a body."""
    match value:
        case str():
            return secret.decode()
        case dict():
            return {key: _everything(secret, item) for key, item in value.items()}
        case list():
            return [_everything(secret, item) for item in value]
    return value


def misplaced(route: Route) -> Iterator[Draft]:
    """Make requests of a route with tokens where none belongs; `{{stray}}` is one."""
    good = valid(route, First())
    stray = b"{{stray}}"
    parent, _, _ = good.path.rpartition(b"/")
    for wrong in (stray, b"{{stray:0:50}}", b"{{stray:0:84}}00000000", b"x" + stray + b"?x"):
        yield replace(good, path=parent + b"/" + wrong)
    yield replace(good, path=b"/" + stray + good.path)
    names = [pair.partition(b"=")[0] for pair in good.query.split(b"&")] if good.query else []
    for query in (
        b"token=" + stray,
        stray + b"=1&filter[" + stray + b"]x=1&playerCount[" + stray + b"]=1",
        b"&".join(name + b"=" + stray for name in [*names, b"all", b"follow", b"filterNot"]),
    ):
        yield replace(good, query=query)
    if good.body is not None:
        value = json.loads(good.body)
        for body in (
            bodies.dump(_everything(stray, value)),
            bodies.dump({**value, stray.decode(): 1}),
            bodies.dump({**value, "labels": {stray.decode(): 1}, "env": {stray.decode(): [1]}}),
            stray,
            b'"' + stray,
        ):
            yield replace(good, body=body)
    for name in (b"Cookie", b"X-Token", b"Expect", stray, b"X " + stray, b"X-Forwarded-For"):
        yield replace(good, headers=[*good.headers, (name, stray)])
    bearer = b"Bearer {{alice}}"
    for value in (
        *(b"Bearer {{alice:0:50}}", b"Bearer {{alice:0:84}}00000000", b"{{alice}}"),
        *(
            b"Basic {{alice}}",
            b"Bearer {{alice}}x",
            b"Bearer {{bob}} {{alice}}",
            b"Bearer\t{{bob}}",
        ),
        *(b"Bearer " + stray, b"Bearer {{operator}}", b"Bearer {{reader}}"),
    ):
        others = [pair for pair in good.headers if pair[0] != b"Authorization"]
        yield replace(good, headers=[*others, (b"Authorization", value)])
        yield replace(good, headers=[*others, (b"Authorization", value)], version=b"HTTP/3")
    yield replace(good, headers=[*good.headers, (b"Authorization", bearer)])


def rendered(draft: Draft, tokens: dict[str, str]) -> bytes:
    """Give the bytes with the tokens, and a length that counts them."""
    body = None if draft.body is None else with_tokens(draft.body, tokens)
    return with_tokens(replace(draft, body=body).render(), tokens)


class Tour:
    """Sends everything and keeps what was answered."""

    def __init__(self, base_url: str, tokens: dict[str, str]) -> None:
        self.port = int(base_url.rpartition(":")[2])
        self.tokens = tokens | {"stray": STRAY}
        self.answers: list[tuple[bytes, RawAnswer]] = []

    async def send(self, draft: Draft) -> RawAnswer:
        data = rendered(draft, self.tokens)
        answer = await ask(self.port, data)
        assert answer is not None, data
        self.answers.append((data, answer))
        return answer

    async def go(self) -> None:
        """Make what the requests are about, then send those of every route."""
        await self._fill()
        for route in ROUTES:
            good = valid(route, First())
            answer = await self.send(good)
            done = {TEMPLATES[route.method, route.path].status}
            # What an operator would act on may be gone or be another's name.
            done |= {404, 409} if route.path.startswith("/operator/") else set()
            assert answer.status in done, answer.body
            for draft in misplaced(route):
                await self.send(draft)
        await self._have_passwords_quoted()
        await self._end_all()

    async def _fill(self) -> None:
        await self.ask("POST", "/application", APPLICATION)
        for name in (EDITED, "another"):
            await self.ask("POST", "/application", APPLICATION | {"name": name})
        await self.ask("POST", "/application/game/tags", {"tag": "v1"})

        async def pulled() -> bool:
            answer = await self.ask("GET", "/tag/local/game/v1")
            return bool(answer.json["exists"])

        await eventually(pulled)
        env = {"CANARY": ENV, "OTHER": f"{ENV} and more"}
        for name in (*LIVE, *DOOMED, ENDED, SHOWN):
            body = {"location": "local", "image": "game", "id": name, "env": env}
            assert (await self.ask("POST", "/session", body)).status == 201
        await self.ask("DELETE", f"/session/{ENDED}")
        for name, value in (("{}", "x"), ("TILTYARD_HOST", ENV), ("OK", [ENV]), ("", ENV)):
            body = {"location": "local", "image": "game", "env": {name: value, "CANARY": ENV}}
            await self.ask("POST", "/session", body)
            await self.ask("POST", "/session", body | {"image": "unknown"})
            await self.ask("POST", "/session", body | {"ports": [{"container": 1, "host": 1}]})
        await self.ask("POST", "/session", {"location": "local", "image": "game", "env": ENV})
        for name in ("reader", "child"):
            made = await self.ask("POST", "/token", {"name": name, "scopes": ["session:read"]})
            self.tokens[name] = made.json["token"]

    async def _have_passwords_quoted(self) -> None:
        listed = await self.ask("GET", "/operator/registry", who=b"operator")
        (address,) = (r["address"] for r in listed.json["registries"] if r["name"] == "quoting")
        address = address.replace("127.0.0.1", "localhost")
        quoted = {"address": address, "username": "robot", "password": REGISTRY_PASSWORD}
        put = await self.ask("PUT", "/operator/registry/quoted", quoted, who=b"operator")
        assert put.status == 204, put.body
        for name in LOGGED_IN:
            body = APPLICATION | {"name": name, "registry": name}
            assert (await self.ask("POST", "/application", body)).status == 201
            for _ in range(len(WAYS) * len(CHALLENGES)):
                enabled = await self.ask("POST", f"/application/{name}/tags", {"tag": "v1"})
                listed = await self.ask("GET", f"/application/{name}/tags/available")
                assert 204 not in {enabled.status, listed.status}
        audit = await self.ask("GET", "/operator/audit?kind=registry", who=b"operator")
        assert b"passwordGiven" in audit.body

    async def ask(
        self, method: str, path: str, body: Any = None, who: bytes = b"alice"
    ) -> RawAnswer:
        headers = [(b"Host", b"a"), (b"Authorization", b"Bearer {{" + who + b"}}")]
        sent = None if body is None else bodies.dump(body)
        return await self.send(Draft(ROUTES[0], method, path.encode(), b"", headers, sent))

    async def _end_all(self) -> None:
        listed = await self.ask("GET", "/session?all=1")
        for session in listed.json["sessions"]:
            await self.ask("DELETE", f"/session/{session['id']}")

    @property
    def secrets(self) -> list[Secret]:
        """The tokens that somebody holds, and those that were made on the way."""
        made = [answer.json["token"] for _, answer in self.answers if _has_token(answer)]
        held = [text for name, text in self.tokens.items() if name != "stray"]
        return [Secret(text) for text in {*held, *made}]

    def check_answers(self) -> None:
        """An answer may repeat what its caller put into path, query or body, and no more."""
        stray = Secret(STRAY)
        for sent, answer in self.answers:
            told = repr(answer.headers).encode() + answer.body
            new = _has_token(answer)
            for secret in self.secrets:
                assert not secret.is_in(told) or (new and secret.text == answer.json["token"]), (
                    sent
                )
            assert not any(trace in told for trace in stray.traces[len(stray.parts) :]), sent
            assert not any(trace in told for trace in other_traces()), sent


def _has_token(answer: RawAnswer) -> bool:
    return answer.status == 201 and "token" in answer.json


def found_in(data: bytes, secrets: list[Secret], where: object) -> None:
    for secret in secrets:
        assert not secret.is_in(data), where
    for trace in other_traces():
        assert trace not in data, where


def check_database(path: Path, secrets: list[Secret]) -> None:
    """Every row, and every byte of every file; of a token there is the hash, and as bytes."""
    db = sqlite3.connect(path)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    for table in tables:
        for row in db.execute(f"SELECT * FROM {table}"):
            found_in(repr(row).encode(), secrets, (table, row))
    kept = dict(db.execute("SELECT secret_hash, typeof(secret_hash) FROM token"))
    db.close()
    assert set(kept.values()) == {"blob"}
    assert kept.keys() <= {secret.hash for secret in secrets}
    assert len(kept) > 3
    check_files(path.parent, secrets)


def check_files(folder: Path, secrets: list[Secret], *names: str) -> None:
    """Check the files of these names, or every file but the one that is meant to have tokens."""
    paths = [folder / name for name in names] or [p for p in folder.rglob("*") if p.is_file()]
    assert paths
    for path in paths:
        if path.name != KEPT:
            found_in(path.read_bytes(), secrets, path)
