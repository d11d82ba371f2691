"""What schemathesis needs beyond the OpenAPI document; its own process imports this."""

import itertools
import json
import os
import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.generation.meta import TestPhase

WORDS: dict[str, dict[str, Any]] = {
    "StartBody": {"location": {"enum": ["local"]}, "image": {"enum": ["game"]}},
    "ApplicationBody": {
        "registry": {"enum": ["local"]},
        "repository": {"enum": ["studio/game", "studio/other"]},
        "nodePool": {"enum": ["default"]},
        "regions": {"type": "array", "minItems": 1, "items": {"enum": ["local"]}},
    },
    "WebhookBody": {"url": {"enum": ["https://127.0.0.1:9/hook"]}},
    "ReplayBody": {"event": {"enum": ["1-1", "1-2"]}},
}
"""Names that exist in this deployment: with others no session would ever start.

The address of webhooks refuses connections at once, and needs no lookup.
"""

QUERY_WORDS = {"account": ["alice"], "image": ["game"], "location": ["local"], "version": ["v1"]}
"""The same for the query of `GET /operator/placement`."""

STARTS = {"location": "local", "image": "game", "id": None}
"""The body of a start that works, for chains of calls to begin with."""

NOT_IN_SCHEMA = {
    "the sum of two numbers in one text": r"must be at most 8760h",
    "a comparison of two fields": r"must not be (above limits|above ram|below reservation)",
    "uniqueness by a part of an item": r"a port and protocol may be declared once",
    "uniqueness whatever the case, and over two fields": r"the address and each alias .*",
    "a name of digits, which is a port": r"must be host\[:port\], .*",
    "names that engines replace": r"must be registry-1\.docker\.io, .*",
    "a length as JSON": r"must be at most \d+ bytes as JSON",
    "players that have joined before": r"a session has at most .* players, .*",
    "the owner of the token": r"(an operator's|an account's) token cannot have .*",
    "ports of the application": r"the application (declares no such port|listens on \S+ for .*)",
    "a sum with the places of ports": r"leaves no room for the ports beside it",
    "objects of the operator": r"unknown (registry|node pool|region)",
    "permissions": r"(the )?node pool( \S+)? does not allow the (host's network|capabilities .+)",
    "the user of a password": r"needs a username|must be given: none is stored for .*",
    "the content of a certificate": r"must be certificates as PEM text|contains a private key: .*",
    "hosts and ports of URLs": r"must (be an https URL|have a (host|port|public)).*",
    "kinds of events": r"must be a kind of event, .*",
    "a header, and a number that is not 0": r"must be the id of an event",
    "the aliases of the registry": r"is not an OCI repository name",
}
"""Violations in a request that fits its schema, by the rule that JSON Schema cannot express."""

_OWN_TOKEN = os.environ["TILTYARD_TOKEN"].split("_")[1]
_numbers = itertools.count()


@schemathesis.hook
def before_load_schema(_: HookContext, raw_schema: dict[str, Any]) -> None:
    """Forbid undocumented properties in answers; insert the names of this deployment."""
    components = raw_schema["components"]["schemas"]
    for name, schema in components.items():
        if schema.get("type") == "object" and not name.endswith("Body"):
            schema.setdefault("additionalProperties", False)
    for name, words in WORDS.items():
        components[name]["properties"].update(words)
    for parameter in raw_schema["paths"]["/operator/placement"]["get"]["parameters"]:
        if parameter["name"] in QUERY_WORDS:
            parameter["schema"]["enum"] = QUERY_WORDS[parameter["name"]]
    regions = raw_schema["paths"]["/region"]["get"]["responses"]["200"]
    regions["links"] = {"start": {"operationId": "start_session", "requestBody": STARTS}}


@schemathesis.hook
def filter_case(_: HookContext, case: Case[Any]) -> bool:
    """Skip calls that would end the run: of its own token and its own application."""
    named = set((case.path_parameters or {}).values())
    return not (
        (case.method == "DELETE" and case.path == "/operator/token/{id}" and _OWN_TOKEN in named)
        or (case.method == "PUT" and case.path == "/application/{name}" and "game" in named)
    )


@schemathesis.hook
def map_case(_: HookContext, case: Case[Any]) -> Case[Any]:
    """Give objects made at the head of a chain of calls new names, else the chain ends there.

    Every other report is that of the one session that has ended.
    """
    assert case.meta is not None
    if case.path == "/session/{id}/report" and case.meta.generation.mode.is_positive:
        assert case.path_parameters is not None
        if next(_numbers) % 2:
            case.path_parameters["id"] = "ended-1"
    if case.meta.phase.name == TestPhase.STATEFUL and case.method == "POST":
        body = case.body
        if isinstance(body, dict) and "name" in body:
            body["name"] = f"new-{next(_numbers)}"
    return case


@schemathesis.hook
def filter_failure(_: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """Ignore the acceptance of a bad deep object that was not sent: an empty one has no text."""
    return not (
        isinstance(failure, AcceptedNegativeData)
        and case.path == "/session"
        and case.method == "GET"
        and "filter" not in str(response.request.url)
        and "filter" in failure.message
    )


@schemathesis.check
def refused_beyond_the_schema(_: CheckContext, response: Response, case: Case[Any]) -> None:
    """Require that every violation in a request that fits the schema is in `NOT_IN_SCHEMA`."""
    assert case.meta is not None
    if not case.meta.generation.mode.is_positive or response.status_code not in {400, 422}:
        return
    found = [one["description"] for one in json.loads(response.content).get("violations", [])]
    unfounded = [
        text
        for text in found
        if not any(re.fullmatch(one, text) for one in NOT_IN_SCHEMA.values())
    ]
    assert found, "a refusal without violations"
    assert not unfounded, f"the schema allows what is refused: {unfounded}"
