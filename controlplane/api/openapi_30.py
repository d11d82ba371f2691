"""The OpenAPI document as OpenAPI 3.0, for generators that do not read 3.1. Pure."""

from collections.abc import Mapping
from typing import Any

_UNKNOWN = frozenset({"const", "propertyNames"})
"""Keywords of JSON Schema that 3.0 lacks; without them a schema allows more."""


def openapi_30(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an OpenAPI 3.1 document; handles only what `openapi.py` writes.

    A nullable enumeration in a request loses null, which means absent there.
    """
    info = dict(document["info"])
    info["license"] = {"name": info["license"]["name"]}
    return {**_part(document), "openapi": "3.0.3", "info": info}


def _part(part: Any) -> Any:
    if isinstance(part, list):
        return [_part(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for key, value in part.items():
        if key == "schema":
            found[key] = _schema(value)
        elif key == "schemas":
            found[key] = {name: _schema(schema) for name, schema in value.items()}
        else:
            found[key] = _part(value)
    return found


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):  # additionalProperties may be false
        return schema
    found = {key: value for key, value in schema.items() if key not in _UNKNOWN}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    for key in ("items", "additionalProperties", "not"):
        if key in found:
            found[key] = _schema(found[key])
    if "properties" in found:
        found["properties"] = {name: _schema(value) for name, value in found["properties"].items()}
    if "anyOf" in found:
        return _union(found)
    if "$ref" in found and len(found) > 1:  # 3.0 ignores siblings of a reference
        found["allOf"] = [{"$ref": found.pop("$ref")}]
    return found


def _union(schema: dict[str, Any]) -> dict[str, Any]:
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    options = [_schema(option) for option in schema["anyOf"] if option.get("type") != "null"]
    if len(options) == len(schema["anyOf"]):
        return {**beside, "anyOf": options}
    if len(options) > 1:
        return {**beside, "anyOf": options, "nullable": True}
    [option] = options
    if "$ref" in option:
        option = {"allOf": [option]}
    return {**option, **beside, "nullable": True}
