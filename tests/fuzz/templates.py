"""A valid request for every route of the table: what the generator mutates.

A route without a template fails `test_every_route_has_a_template`. A new one takes one line: the
status of its success, and its body if it has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.authority import AUTHORITY
from tests.support.controlplane.system import APPLICATION

MIB = 1024 * 1024
LIVE = tuple(f"live-{number}" for number in range(4))
"""Sessions that are there from the beginning and that no request ends: none has one in its path,
where another method would."""
SHOWN = "shown-0"
ENDED = "ended-0"
EDITED = "edited"
"""An application that starts no sessions: else hardly any would be left to start."""
SOME = tuple(f"s-{number}" for number in range(100))
"""Ids that requests start and stop: few, so that the world does not grow without bound."""
DOOMED = tuple(f"doomed-{number}" for number in range(16))
"""Sessions that are there from the beginning for requests to end."""
MADE = tuple(f"made-{number}" for number in range(5))
"""Names of what requests of operators make and remove; the accounts are there already."""
REGISTRY_PASSWORD = "pw-5e0f77c1-registry-canary"
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "id": (SHOWN, ENDED, *SOME[:10]),
    "name": ("game",),
    "image": ("game",),
    "region": ("local", "elsewhere"),
    "location": ("local",),
    "version": ("v1", "v2"),
    "file": ("start.js",),
    "agent": ("a0",),
    "account": MADE,
    "nodePool": MADE,
    "registry": MADE,
}


@dataclass(frozen=True)
class Template:
    """A valid request; a string of a tuple stands for one of them by chance."""

    status: int
    body: Any = None
    query: str = ""
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_bytes: int = MIB
    unreached: bool = False
    """What it asks for cannot succeed in the fuzzer's world."""
    varied: tuple[str, ...] = ()
    """Properties of the body that get a number appended, so that not all requests collide."""


_BODY = {
    "location": "local",
    "image": "game",
    "id": "s-",
    "env": {"MODE": "duel"},
    "args": ["--fast"],
    "restart": False,
    "labels": {"stage": "final"},
    "version": "v1",
    "ttl": "1h30m",
    "external_id": "match-1",
    "ports": [{"container": 7777, "host": 25000, "type": "udp"}],
}
_POOL = {"size": 5, "enabled": True, "claimSignal": "SIGUSR1"} | {
    key: _BODY[key] for key in ("env", "args", "labels")
}
_NEW_TOKEN = {"name": "token-", "scopes": ["session:read"], "expires_after": "1h"}
_QUOTA = {"sessions": 5, "cpu": 2.5, "ram": 512}
_LIST = "all=true&location=local&playerCount[lt]=9&playerCount[gt]=-1&filter[stage]=final"
_GPU = {"cpu": 1, "ram": 256, "gpu": 0}
_GAME = APPLICATION | {"limits": _GPU | {"disk": 1024}, "reservation": dict(_GPU)}

# fmt: off
TEMPLATES: dict[tuple[str, str], Template] = {
    ("POST", "/session"): Template(201, _BODY, varied=("id",)),
    ("GET", "/session"): Template(200, query=_LIST),
    ("GET", "/session/{id}"): Template(200),
    ("DELETE", "/session/{id}"): Template(204, parameters={"id": (*DOOMED[:8], *SOME[:4])}),
    ("GET", "/session/{id}/report"): Template(200, parameters={"id": (ENDED,)}),
    ("PUT", "/session/player/join"): Template(200, {"session": LIVE[0], "players": ["p"]}),
    ("DELETE", "/session/player/leave"): Template(200, {"session": LIVE[0], "players": ["p"]}),
    ("GET", "/logs"): Template(200, query=f"id={LIVE[0]}&follow=false"),
    ("GET", "/artifacts"): Template(200, query=f"session={ENDED}&path=/data"),
    ("POST", "/application"): Template(201, _GAME | {"name": "app-"}, varied=("name",)),
    ("GET", "/application"): Template(200),
    ("PUT", "/application/{name}"): Template(
        204, {k: v for k, v in _GAME.items() if k != "name"},
        parameters={"name": (EDITED,)}),
    ("POST", "/application/{name}/tags"): Template(204, {"tag": "v1"}),
    ("GET", "/application/{name}/tags/available"): Template(200, query="page=1&pageSize=20"),
    ("GET", "/warm-pool"): Template(200),
    ("PUT", "/warm-pool/{image}/{location}"): Template(204, _POOL),
    ("DELETE", "/warm-pool/{image}/{location}"): Template(204),
    ("GET", "/available-location/{image}"): Template(200),
    ("GET", "/tag/{region}/{image}/{version}"): Template(200),
    ("GET", "/region"): Template(200),
    ("POST", "/token"): Template(201, _NEW_TOKEN, max_bytes=64 * 1024, varied=("name",)),
    ("GET", "/healthz"): Template(200),
    ("GET", "/readyz"): Template(200),
    ("GET", "/operator/region"): Template(200),
    ("PUT", "/operator/region/{region}"): Template(204, parameters={"region": MADE}),
    ("DELETE", "/operator/region/{region}"): Template(204, parameters={"region": MADE}),
    ("GET", "/operator/node-pool"): Template(200),
    ("PUT", "/operator/node-pool/{nodePool}"): Template(
        204, {"strategy": "spread", "hostNetwork": True}
    ),
    ("DELETE", "/operator/node-pool/{nodePool}"): Template(204),
    ("GET", "/operator/registry"): Template(200),
    ("PUT", "/operator/registry/{registry}"): Template(
        204, {
            "address": "registry.invalid:5000", "aliases": ["alias.invalid"], "username": "robot",
            "password": REGISTRY_PASSWORD, "authHosts": ["auth.invalid"], "private": True,
            "ca": AUTHORITY,
        }),
    ("DELETE", "/operator/registry/{registry}"): Template(204),
    ("GET", "/operator/placement"): Template(
        200,
        query="account=alice&image=game&location=local&version=v1&ports[7777/udp]=25000"),
    ("GET", "/operator/agent"): Template(200),
    ("POST", "/operator/enrolment-token"): Template(
        201, {"region": "local", "nodePool": "default"}),
    ("GET", "/operator/agent/{agent}"): Template(200),
    ("DELETE", "/operator/agent/{agent}"): Template(204, unreached=True),
    ("POST", "/operator/agent/{agent}/token"): Template(201, unreached=True),
    ("POST", "/operator/agent/{agent}/drain"): Template(
        200, {"deadline": "2h"},
        parameters={"agent": ("nobody",)}, unreached=True),
    ("DELETE", "/operator/agent/{agent}/drain"): Template(200),
    ("POST", "/operator/agent/{agent}/revoke"): Template(204, unreached=True),
    ("GET", "/operator/authority"): Template(200),
    ("POST", "/operator/authority/rotate"): Template(200, {"compromised": False}),
    ("POST", "/operator/authority/finish"): Template(200, {"force": False}),
    ("GET", "/operator/account"): Template(200),
    ("POST", "/operator/account"): Template(
        201, {"name": "made-", "quota": _QUOTA}, varied=("name",)),
    ("PUT", "/operator/account/{account}"): Template(204, {"quota": _QUOTA}),
    ("DELETE", "/operator/account/{account}"): Template(204),
    ("GET", "/operator/token"): Template(200, query="account=alice&all=true"),
    ("POST", "/operator/token"): Template(
        201, {"account": "alice"} | _NEW_TOKEN,
        max_bytes=64 * 1024, varied=("name",)),
    ("DELETE", "/operator/token/{id}"): Template(
        200, parameters={"id": ("{{spare:3:19}}", "0123456789abcdef")}),
    ("GET", "/operator/session"): Template(200, query="account=alice&limit=10"),
    ("DELETE", "/operator/session/{account}/{id}"): Template(
        204, parameters={"account": ("alice",), "id": DOOMED[8:]}),
    ("GET", "/operator/audit"): Template(200, query="account=alice&kind=session&limit=10"),
    ("GET", "/openapi.json"): Template(200),
    ("GET", "/openapi-3.0.json"): Template(200),
    ("GET", "/docs"): Template(200),
    ("GET", "/docs/{file}"): Template(200),
}
# fmt: on
