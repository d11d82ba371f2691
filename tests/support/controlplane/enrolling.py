"""A control plane that enrols hosts, and the requests of a host."""

import ssl
from pathlib import Path
from typing import Any

from tests.support import certificates
from tests.support.certificates import a_request
from tests.support.controlplane.system import Answer, System
from tests.support.fake_clock import AheadClock

ENROLMENT_HOST = "enrolment.tiltyard.internal"
BODY = {"name": "host-1", "address": "192.0.2.7:7444"}


class Tokens(System):
    """The calls of an operator for hosts that enrol."""

    async def operate(self, method: str, path: str, **more: Any) -> Answer:
        return await self.call(method, f"/operator{path}", **more)

    async def token(self, **body: str) -> str:
        """Create an enrolment token, by default for the region `local`."""
        answer = await self.operate("POST", "/enrolment-token", json=body or {"region": "local"})
        assert answer.status == 201, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        return str(answer.json["token"])

    async def token_again(self, agent: str) -> str:
        """Create a token with which an agent enrols again."""
        return str((await self.operate("POST", f"/agent/{agent}/token")).expect(201).json["token"])

    async def shown(self, name: str = "host-1") -> dict[str, Any]:
        """Return an agent as operators see it."""
        return dict(await self.read(f"/operator/agent/{name}"))


class Enrolling(Tokens):
    """A control plane with an adjustable wall clock and no declared agents."""

    clock: AheadClock

    def __init__(self, folder: Path, **settings: Any) -> None:
        more = {"enrol_listen": "127.0.0.1:0", "node_pools": ("default", "big"), **settings}
        super().__init__(folder, agents=0, **more)
        self.clock = AheadClock()
        self._trusting: dict[bytes, ssl.SSLContext] = {}

    def trusting(self) -> ssl.SSLContext:
        """The TLS context of a host that has verified the fingerprint."""
        authority = self.control_plane.enrolment.authority
        if authority not in self._trusting:
            self._trusting[authority] = certificates.trusting(authority)
        return self._trusting[authority]

    async def ask(
        self, body: Any = None, *, method: str = "POST", path: str = "/enrol", **more: Any
    ) -> Answer:
        """Send a request to the enrolment listener."""
        url = self.control_plane.enrol_url + path
        tls: dict[str, Any] = {"ssl": self.trusting(), "server_hostname": ENROLMENT_HOST}
        async with self.http.request(method, url, json=body, **tls, **more) as response:
            return Answer(response, await response.read())

    async def enrol(self, token: str | None = None, **changes: Any) -> Answer:
        """Ask for a certificate as a host does."""
        text = (await self.token()) if token is None else token
        return await self.ask({**BODY, "token": text, "request": a_request().decode(), **changes})

    async def names(self) -> list[str]:
        return [str(agent["name"]) for agent in (await self.read("/operator/agent"))["agents"]]
