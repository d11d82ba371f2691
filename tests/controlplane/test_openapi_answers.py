"""The document against the OpenAPI specification and against all answers."""

import copy
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from controlplane.api.openapi import openapi_document
from controlplane.api.operations.operation import Route
from controlplane.api.routes import ROUTES
from controlplane.http.messages import JSON
from tests.controlplane.test_api_matrix import CASES, World, ask
from tests.support.controlplane.system import Answer

DOCUMENT = openapi_document(ROUTES)
COMPONENTS: dict[str, Any] = DOCUMENT["components"]["schemas"]
BY_NAME = {route.handler.name: route for route in ROUTES}
KEYWORDS = {
    *("$ref", "type", "enum", "const", "anyOf", "not", "default", "description", "title"),
    *("properties", "required", "additionalProperties", "propertyNames", "maxProperties"),
    *("items", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "multipleOf", "writeOnly"),
}
"""The JSON Schema keywords in use; validators ignore unknown ones, such as `ge`."""


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema in it."""
    if not isinstance(part, dict):
        return
    yield part
    for one in part.get("properties", {}).values():
        yield from _schemas(one)
    for key in ("items", "additionalProperties", "propertyNames", "not"):
        yield from _schemas(part.get(key))
    for one in part.get("anyOf", []):
        yield from _schemas(one)


def _every_schema() -> Iterator[dict[str, Any]]:
    for component in COMPONENTS.values():
        yield from _schemas(component)
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                yield from _schemas(parameter["schema"])


def _closed(name: str) -> jsonschema_rs.Draft202012Validator:
    """Make a validator of a component that rejects undocumented properties at any depth."""
    components = copy.deepcopy(COMPONENTS)
    for component in components.values():
        for schema in _schemas(component):
            if schema.get("type") == "object":
                schema.setdefault("additionalProperties", False)
    root = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": components}}
    return jsonschema_rs.Draft202012Validator(root, validate_formats=True)


ERROR = _closed("ErrorResponse")


def test_the_document_is_valid_openapi() -> None:
    validator = jsonschema_rs.Draft202012Validator(OPENAPI_31)
    assert [error.message for error in validator.iter_errors(DOCUMENT)] == []


def test_every_schema_is_valid_and_uses_only_known_keywords() -> None:
    found = list(_every_schema())
    for schema in found:
        jsonschema_rs.meta.validate(schema)
        assert set(schema) <= KEYWORDS, schema
        if "pattern" in schema:
            re.compile(schema["pattern"])
    assert len(found) > len(COMPONENTS)


def test_components_are_used_and_well_named() -> None:
    used = {schema["$ref"].rpartition("/")[2] for schema in _every_schema() if "$ref" in schema}
    used |= {
        media["schema"]["$ref"].rpartition("/")[2]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for part in (operation.get("requestBody", {}), *operation["responses"].values())
        for media in part.get("content", {}).values()
        if "$ref" in media["schema"]
    }
    assert used | {"ErrorResponse"} == set(COMPONENTS)
    bodies = {BY_NAME[name].handler.body for name in BY_NAME} - {None}
    for name, schema in COMPONENTS.items():
        assert re.fullmatch("([A-Z][a-z]+)+", name), "one word after another, no module, no number"
        assert schema["description"], name
    assert {body.__name__ for body in bodies if body} <= {n for n in COMPONENTS if "Body" in n}


@pytest.fixture
async def world(system: World) -> World:
    """One that also has objects with all optional properties."""
    await system.fill()
    gpu = {"cpu": 1, "ram": 64, "gpu": 1}
    await system.make_application(None, name="with-gpu", limits=gpu, reservation=gpu)
    rich = {"id": "rich", "labels": {"mode": "duel"}, "external_id": "42"}
    (await system.start(image="alices-game", **rich)).expect(201)
    (await system.join("ann", session="rich")).expect(200)
    return system


async def _answers(world: World, route: Route) -> AsyncIterator[Answer]:
    """Call with permission: a success, and each error due to a token or a name."""
    make = CASES[route.method, route.path].make
    own = await make(world, "alice") if make else ""
    for name, token in ((own, None), (own, "none"), ("unknown/none", None)):
        yield await ask(world, route, name, token)
    if route.handler.body is not None:
        yield await ask(world, route, own, None, json={"colour": 1})


@pytest.mark.system(kind=World)
async def test_all_answers_are_documented(world: World) -> None:
    came: set[str] = set()
    for route in ROUTES:
        shape = route.handler.shape
        answers = [answer async for answer in _answers(world, route)]
        assert answers[0].status == route.handler.status, answers[0].text
        for answer in answers:
            assert answer.status in {route.handler.status} | route.errors, route
            if answer.status >= 400:
                _check(ERROR, answer)
                assert answer.json["statusCode"] == answer.status
            elif shape is not None:
                _check(_closed(shape.__name__), answer)
                came |= set(_keys(answer.json))
            elif answer.status == 204:
                assert answer.body == b""
    assert {"external_id", "gpu", "playerCount"} <= came


def _check(validator: jsonschema_rs.Draft202012Validator, answer: Answer) -> None:
    assert answer.headers["Content-Type"].partition(";")[0] == JSON
    found = [
        f"{error.instance_path}: {error.message}" for error in validator.iter_errors(answer.json)
    ]
    assert not found, f"{answer.path}: {found}"


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _keys(one)
