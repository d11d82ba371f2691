"""An example of each kind of event, for the documentation and the schemas."""

from typing import Any

from controlplane.domain.events.event import Audience, Event, OperatorEvent, data_keys

_EPOCH = 1767225600  # 2026-01-01
_TIME_MS = _EPOCH * 1000
_DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FINGERPRINT = "5d41402abc4b2a76b9719d911017c592ae60bb9f6a1f8f2f5b1d5fd4bb2d8b3a"

_DATA: dict[str, Any] = {
    "agent": None,
    "aliases": ["registry.example"],
    "authHosts": [],
    "authority": _FINGERPRINT,
    "ca": False,
    "capabilities": [],
    "cause": "failing",
    "compromised": False,
    "deadline": _TIME_MS + 3_600_000,
    "digest": _DIGEST,
    "enabled": True,
    "error": "cannot start the container: the engine does not answer",
    "exitCode": 0,
    "expires": _TIME_MS + 86_400_000,
    "fields": ["tag_keep"],
    "forced": False,
    "formerUntil": _TIME_MS + 86_400_000,
    "from": f"{_EPOCH}-3",
    "host": "198.51.100.7",
    "hostNetwork": False,
    "hostTime": _TIME_MS - 40,
    "image": "arena",
    "kept": {"agent": "host-2", "internalId": "8c0f0d8e-6c3e-4c56-9d1c-3f1f0a5f4d11"},
    "labels": {"mode": "duel"},
    "left": [],
    "location": "eu",
    "name": "backend",
    "nodePool": "default",
    "of": "2025-12-31T23:00:00Z",
    "passwordGiven": True,
    "players": ["ann", "bo"],
    "ports": {"7777/udp": 20001},
    "private": True,
    "pull": "failed",
    "quota": {"sessions": 100, "cpu": None, "ram": None},
    "reason": "stopped",
    "ready": 5,
    "region": "eu",
    "scopes": ["session:read", "session:start"],
    "serial": "2c2bb285dea29639b6c62b1ef0cb31ae663d898b",
    "size": 5,
    "skipped": [],
    "status": 503,
    "stopped": {"agent": "host-1", "internalId": "0b0b6c3e-2f55-4f0e-8d39-9f1c1d3c9a10"},
    "strategy": "packed",
    "tag": "v3",
    "tagKeep": 3,
    "to": f"{_EPOCH}-9",
    "tokens": 2,
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "until": _TIME_MS + 5000,
    "username": "robot",
    "version": 1,
    "wasLost": False,
    "why": "cannot start in 'eu': no host has capacity",
    "with": "0123456789abcdef",
}
"""Values of the data by the names in JSON."""

_DATA_OF: dict[str, dict[str, Any]] = {
    "agent.avoided": {"reason": "engine_error"},
    "registry.set": {"address": "hub.example"},
    "tag.failed": {
        "reason": "the registry does not have its image, or denies access to it",
    },
    "tag.pulled": {"agent": "host-1"},
    "warm_pool.short": {"ready": 2},
    "webhook.changed": {"fields": ["url"]},
    "webhook.created": {"host": "hooks.example.com"},
    "webhook.gap": {"cause": "retention"},
}
"""Values of a kind that differ from those."""

_OBJECTS = {
    "none": "",
    "the account": "studio",
    "the agent": "host-1",
    "the application": "arena",
    "`application:tag`": "arena:v3",
    "`application/region`": "arena/eu",
    "the enrolment token's id": "3b4032c8f0bf3610",
    "the new authority's fingerprint": _FINGERPRINT,
    "the node pool": "default",
    "the region": "eu",
    "the registry": "hub",
    "the session": "match-1",
    "the token's id": "0123456789abcdef",
    "the webhook's id": "5f0d5c1d6e0b0f7a",
}
"""The names of the objects."""


def example_of(kind: type[Event]) -> dict[str, Any]:
    """Return an event of a kind as its account gets it, or operators if it is for them alone."""
    is_for_operators = kind.audience is Audience.OPERATOR
    values = _DATA | _DATA_OF.get(kind.kind, {})
    example: dict[str, Any] = {
        "id": f"{_EPOCH}-17",
        "type": kind.kind,
        "version": kind.version,
        "time": _TIME_MS,
        "account": None if issubclass(kind, OperatorEvent) else "studio",
        "object": _OBJECTS[kind.object_type],
        "actor": "controlplane",
    }
    if is_for_operators:
        example["address"] = None
    return example | {"data": {key: values[key] for _, key in data_keys(kind)}}
