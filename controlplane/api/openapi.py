"""The OpenAPI 3.1 document, generated from the route table and its models."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from controlplane.api.event_schemas import event_components, event_webhooks
from controlplane.api.operations.fields import json_pattern
from controlplane.api.operations.operation import ANYWHERE, Operation, Route
from controlplane.domain.names import NAME_PATTERN
from controlplane.http.errors import CODES, ErrorResponse
from controlplane.http.messages import JSON
from controlplane.registries.client import TAG

_VERSION = version("tiltyard")
_REF = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_NAME = f"^{NAME_PATTERN}$"
_PATTERNS = {"version": json_pattern(TAG), "region": _NAME, "nodePool": _NAME, "registry": _NAME}
"""Patterns of validated path parameters; other unknown values are just not found."""

_HEADERS: dict[str, Any] = {
    "X-Request-Id": {
        "description": "UUID of the request, also in the server's log.",
        "required": True,
        "schema": {"type": "string", "format": "uuid"},
    },
    "Cache-Control": {"required": True, "schema": {"type": "string"}},
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds; absent if a retry does not help, or the time is unknown.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_ERROR_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}},
    420: _RETRY_AFTER,
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of these routes."""
    table = tuple(routes)
    schemas = _Schemas(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    documented = sorted(ANYWHERE.union(*(route.errors for route in table)))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tiltyard",
            "version": _VERSION,
            "description": "Hosts game sessions: one call starts a containerized game server"
            " in a region, on an address that players can reach.\n\nHEAD answers as GET, without a"
            " body. OPTIONS needs no token: 204 with the methods of the path in `Allow`.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "webhooks": event_webhooks(),
        "components": {
            "schemas": schemas.components | event_components(),
            "responses": {f"Error{status}": _error(status, schemas) for status in documented},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schema(GenerateJsonSchema):
    """Omits titles, and null defaults: some generators require properties with a default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if self.mode == "serialization" or schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Apply the pattern to all keys; pydantic's schema accepts any value for other keys."""
        found = super().dict_schema(schema)
        for pattern, values in found.pop("patternProperties", {}).items():
            found["additionalProperties"] = values
            found["propertyNames"] = {**found.get("propertyNames", {}), "pattern": pattern}
        return found


class _BodySchema(_Schema):
    """Gives strings the pattern that the JSON reader enforces."""

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        found = super().str_schema(schema)
        if self.mode == "validation":
            found.setdefault("pattern", r"^[^\u0000]*$")
        return found


class _QuerySchema(_Schema):
    """Makes no parameter nullable: it is absent instead."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


class _Schemas:
    """Schemas of all bodies, queries and responses; model names are unique."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        operations = [route.handler for route in routes]
        self._modes: dict[Any, JsonSchemaMode] = {ErrorResponse: "serialization"}
        self._modes |= {op.shape: "serialization" for op in operations if op.shape is not None}
        self._modes |= {op.body: "validation" for op in operations if op.body is not None}
        self._references, found = TypeAdapter.json_schemas(
            [(model, mode, TypeAdapter(model)) for model, mode in self._modes.items()],
            ref_template=_REF,
            schema_generator=_BodySchema,
        )
        self.components: dict[str, Any] = found["$defs"]

    def reference(self, model: Any) -> dict[str, Any]:
        return self._references[model, self._modes[model]]

    def properties(self, query: type[BaseModel]) -> tuple[dict[str, Any], list[str]]:
        """Return a query's parameters by name, and the required names."""
        schema = query.model_json_schema(schema_generator=_QuerySchema, ref_template=_REF)
        self.components.update(schema.get("$defs", {}))
        return schema["properties"], schema.get("required", [])


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    handler = route.handler
    summary, _, description = handler.docstring.partition("\n\n")
    suffix = f"_by_{route.method.lower()}" if route.alias_of else ""
    described: dict[str, Any] = {
        "operationId": handler.name + suffix,
        "summary": summary.replace("\n", " ").removesuffix("."),
        "tags": [route.path.split("/")[1]],
        "parameters": [
            *_path_parameters(route.path),
            *_query_parameters(handler, schemas),
            *(
                {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
                for name, text in handler.reads.items()
            ),
        ],
        "responses": {
            str(handler.status): _success(handler, schemas),
            **{
                str(status): {"$ref": f"#/components/responses/Error{status}"}
                for status in sorted(route.errors | ANYWHERE)
            },
        },
    }
    notes = [description]
    if route.alias_of:
        notes.append(f"The same as {route.alias_of}, for clients that cannot send it with a body.")
    if route.scope is None:
        described["security"] = []
    else:
        notes.append(f"Needs the scope `{route.scope}`.")
    described["description"] = "\n\n".join(note for note in notes if note)
    if handler.body is not None:
        content = {JSON: {"schema": schemas.reference(handler.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    found = []
    for name in _PARAMETER.findall(path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if name in _PATTERNS:
            schema["pattern"] = _PATTERNS[name]
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _query_parameters(handler: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if handler.query is None:
        return []
    properties, required = schemas.properties(handler.query)
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        | ({"style": "deepObject", "explode": True} if name in handler.query.deep else {})
        for name, schema in properties.items()
    ]


def _success(handler: Operation, schemas: _Schemas) -> dict[str, Any]:
    success: dict[str, Any] = {
        "description": HTTPStatus(handler.status).phrase,
        "headers": _HEADERS
        | {
            name: {"description": text, "required": True, "schema": {"type": "string"}}
            for name, text in handler.headers.items()
        }
        | {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in handler.at_times.items()
        },
    }
    content: dict[str, Any] = {kind: {"schema": _raw(kind)} for kind in handler.media_types}
    if handler.shape is not None:
        content[JSON] = {"schema": schemas.reference(handler.shape)}
    if content:
        success["content"] = content
    return success


def _raw(media_type: str) -> dict[str, Any]:
    """Describe a body without a model; `binary` makes generated clients return bytes."""
    if media_type == JSON:
        return {"type": "object"}
    return {"type": "string"} | ({} if media_type.startswith("text/") else {"format": "binary"})


def _error(status: int, schemas: _Schemas) -> dict[str, Any]:
    return {
        "description": " or ".join(f"`{code}`" for code in CODES[status]),
        "headers": _HEADERS | _ERROR_HEADERS.get(status, {}),
        "content": {JSON: {"schema": schemas.reference(ErrorResponse)}},
    }
