"""JSON Schemas and examples of all kinds of events, made from their types."""

from typing import Any, get_type_hints

from pydantic import TypeAdapter

from controlplane.api.event_examples import example_of
from controlplane.domain.events.event import Audience, Event, camel_case, data_keys
from controlplane.domain.events.kinds import KINDS
from controlplane.domain.events.positions import POSITION_PATTERN

_REF = "#/components/schemas/{model}"

ACCOUNT_EVENT = "AccountEvent"
OPERATOR_EVENT = "OperatorEvent"
"""The components of any event that an account, or an operator, can get."""

_OF_MODELS = frozenset({"title", "default"})
"""What pydantic adds to the schemas of models and fields; no field has such a name."""

_TIMESTAMP = {"type": "string", "format": "date-time"}
_DELIVERY_HEADERS = {
    "webhook-id": "The event, the same for each attempt to deliver it.",
    "webhook-timestamp": "When the attempt began, in seconds since the epoch.",
    "webhook-signature": "The signatures, separated by spaces.",
}


def component_of(kind: type[Event]) -> str:
    """Return the name of the component that describes a kind."""
    return f"{kind.__name__}Event"


def event_components() -> dict[str, Any]:
    """Return the schema of each kind, and what accounts and operators can get of all kinds."""
    data, components = _data_schemas()
    for kind in KINDS.values():
        components[component_of(kind)] = _event_schema(kind, data[kind.kind])
    shown = [kind for kind in KINDS.values() if _is_shown(kind)]
    components[ACCOUNT_EVENT] = _any_of("An event that its account gets.", shown)
    components[OPERATOR_EVENT] = _any_of("An event.", list(KINDS.values()))
    return components


def event_webhooks() -> dict[str, Any]:
    """Return the requests that endpoints of accounts can get, by the kind of the event."""
    return {kind.kind: {"post": _delivery(kind)} for kind in KINDS.values() if _is_shown(kind)}


def _is_shown(kind: type[Event]) -> bool:
    """Return whether the account gets the events of a kind."""
    return kind.audience is not Audience.OPERATOR


def _data_schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of the data of each kind, and the components that they refer to."""
    types = {
        (kind.kind, key): get_type_hints(kind)[name]
        for kind in KINDS.values()
        for name, key in data_keys(kind)
    }
    found, definitions = TypeAdapter.json_schemas(
        [(key, "serialization", TypeAdapter(hint)) for key, hint in types.items()],
        ref_template=_REF,
    )
    data = {}
    for kind in KINDS.values():
        keys = [key for _, key in data_keys(kind)]
        properties = {key: _plain(found[(kind.kind, key), "serialization"]) for key in keys}
        data[kind.kind] = {"type": "object", "properties": properties, "required": keys}
    components = definitions.get("$defs", {})
    return data, {name: _plain(each) for name, each in components.items()}


def _plain(schema: Any) -> Any:
    """Return a schema without titles and defaults, with names as in JSON, all required."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _plain(value) for key, value in schema.items() if key not in _OF_MODELS}
    if "properties" in found:
        named = {camel_case(name): value for name, value in found["properties"].items()}
        found |= {"properties": named, "required": list(named)}
    return found


def _event_schema(kind: type[Event], data: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an event of a kind as readers of the log get it."""
    properties = {
        "id": {"type": "string", "pattern": POSITION_PATTERN},
        "type": {"const": kind.kind},
        "version": {"const": kind.version},
        "time": {"type": "integer", "description": "In milliseconds since the epoch."},
        "account": {"type": ["string", "null"]},
        "object": {"type": "string", "description": f"Names {kind.object_type}."},
        "actor": {"type": "string"},
        "address": {
            "type": ["string", "null"],
            "description": "The address of the client; operators alone get it.",
        },
        "data": data,
    }
    return {
        "type": "object",
        "description": description_of(kind),
        "properties": properties,
        "required": [name for name in properties if name != "address"],
        "examples": [example_of(kind)],
    }


def description_of(kind: type[Event]) -> str:
    """Return what a kind means, in one paragraph."""
    return " ".join((kind.__doc__ or "").split())


def _any_of(description: str, kinds: list[type[Event]]) -> dict[str, Any]:
    references = {each.kind: _REF.format(model=component_of(each)) for each in kinds}
    return {
        "description": description,
        "anyOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": "type", "mapping": references},
    }


def _delivery(kind: type[Event]) -> dict[str, Any]:
    """Describe the request by which an endpoint gets an event of a kind."""
    body = {
        "type": "object",
        "properties": {
            "type": {"const": kind.kind},
            "timestamp": _TIMESTAMP,
            "data": {"$ref": _REF.format(model=component_of(kind))},
        },
        "required": ["type", "timestamp", "data"],
    }
    return {
        "operationId": f"on_{kind.kind.replace('.', '_')}",
        "summary": kind.kind,
        "description": description_of(kind),
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": text,
                "schema": {"type": "string"},
            }
            for name, text in _DELIVERY_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"2XX": {"description": "The event was received."}},
    }
