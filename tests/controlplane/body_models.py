"""A valid body for every model of the API, with every property that it may have."""

import json
from typing import Any

from controlplane.api.operations.bodies import Body, parse_body
from controlplane.api.routes import ROUTES
from controlplane.domain.errors import InvalidRequestError
from tests.support.authority import AUTHORITY
from tests.support.controlplane.system import APPLICATION

REGISTRY_PASSWORD = "pw-5e0f77c1-registry-canary"
_START = {
    "location": "local",
    "image": "game",
    "id": "s-1",
    "env": {"MODE": "duel"},
    "args": ["--fast"],
    "restart": False,
    "labels": {"stage": "final"},
    "version": "v1",
    "ttl": "1h30m",
    "external_id": "match-1",
    "ports": [{"container": 7777, "host": 25000, "type": "udp"}],
}
_TOKEN = {"name": "token-1", "scopes": ["session:read"], "expires_after": "1h"}
_WEBHOOK = {
    "url": "https://hooks.invalid:8443/tiltyard?key=1",
    "description": "matchmaker",
    "kinds": ["session.*", "tag.enabled"],
    "image": "game",
    "location": "local",
    "labels": {"stage": "final"},
    "ordered": False,
    "enabled": False,
}
_QUOTA = {"sessions": 5, "cpu": 2.5, "ram": 512}
_GPU = {"cpu": 1, "ram": 256, "gpu": 0}
_GAME = APPLICATION | {
    "name": "app-1",
    "limits": _GPU | {"disk": 1024, "pids": 100, "shm": 128},
    "reservation": _GPU,
    "stopSignal": "SIGINT",
    "stopGrace": 30,
    "capabilities": ["CHOWN", "SETUID"],
    "init": "image",
    "contiguous": True,
    "playerEvents": True,
    "ports": [{"requested": 7777, "protocol": "udp", "tls": False, "same": True}],
}
_BODIES: dict[str, Any] = {
    "start_session": _START,
    "join_players": {"session": "s-1", "players": ["p"]},
    "leave_players": {"session": "s-1", "players": ["p"]},
    "create_application": _GAME,
    "edit_application": {key: value for key, value in _GAME.items() if key != "name"},
    "enable_tag": {"tag": "v1"},
    "set_warm_pool": {"size": 5, "enabled": True, "claimSignal": "SIGUSR1"}
    | {key: _START[key] for key in ("env", "args", "labels")},
    "create_webhook": _WEBHOOK,
    "replace_webhook": _WEBHOOK,
    "replay_events": {"event": "1-17"},
    "make_token": _TOKEN,
    "set_node_pool": {
        "strategy": "spread",
        "hostNetwork": True,
        "capabilities": ["CHOWN", "SETUID"],
    },
    "set_registry": {
        "address": "registry.invalid:5000",
        "aliases": ["alias.invalid"],
        "username": "robot",
        "password": REGISTRY_PASSWORD,
        "authHosts": ["auth.invalid"],
        "private": True,
        "ca": AUTHORITY,
    },
    "create_enrolment_token": {"region": "local", "nodePool": "default"},
    "drain_agent": {"deadline": "2h"},
    "rotate_authority": {"compromised": False},
    "finish_rotation": {"force": False},
    "create_account": {"name": "made-1", "quota": _QUOTA},
    "edit_account": {"quota": _QUOTA},
    "create_token": {"account": "alice"} | _TOKEN,
}
EXAMPLES: dict[type[Body], Any] = {
    route.handler.body: _BODIES[route.handler.name]
    for route in ROUTES
    if route.handler.body is not None
}
MODELS = list(EXAMPLES)


def violations(model: type[Body], value: Any) -> list[str]:
    """Return the fields that are refused in a body."""
    try:
        parse_body(value if isinstance(value, bytes) else json.dumps(value).encode(), model)
    except InvalidRequestError as error:
        return [violation.field for violation in error.violations]
    return []
