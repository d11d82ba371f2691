"""The document of the API and its page: against the routes, OpenAPI and all answers."""

import copy
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from controlplane.api.openapi import openapi_document
from controlplane.api.operations.operation import ANYWHERE, Route
from controlplane.api.routes import ROUTES
from controlplane.http.messages import JSON
from tests.controlplane.test_api_matrix import CASES, World, ask
from tests.support.controlplane.commands import finished
from tests.support.controlplane.system import Answer, System, assert_error

DOCUMENT = openapi_document(ROUTES)


def test_every_route_is_described_with_its_errors_and_scope() -> None:
    described = {
        (method.upper(), path): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert list(described) == [(route.method, route.path) for route in ROUTES]
    for route in ROUTES:
        operation = described[route.method, route.path]
        statuses = {str(status) for status in route.errors | ANYWHERE | {route.handler.status}}
        assert set(operation["responses"]) == statuses, route
        assert (operation.get("security") == []) == (route.scope is None)
        assert route.scope is None or f"`{route.scope}`" in operation["description"]
        assert ("requestBody" in operation) == (route.handler.body is not None)
        assert operation["summary"]
        assert not operation["summary"].endswith(".")


def test_every_reference_is_to_a_component() -> None:
    for kind, name in re.findall(r'"#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"][kind]


def test_only_health_and_documents_need_no_token() -> None:
    open_paths = {route.path for route in ROUTES if route.scope is None}
    assert open_paths == {"/healthz", "/readyz", "/openapi.json", "/docs", "/docs/{file}"}


def test_every_operation_has_an_id_of_its_own() -> None:
    ids = {
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    }
    assert len(ids) == len(ROUTES)


def test_queries_are_documented_as_they_are_written() -> None:
    parameters = {p["name"]: p for p in DOCUMENT["paths"]["/session"]["get"]["parameters"]}
    assert set(parameters) == {"all", "location", "image", "tag", "host", "playerCount", "filter"}
    assert all(not parameter["required"] for parameter in parameters.values())
    assert parameters["all"]["schema"] == {"type": "boolean", "default": False}
    assert parameters["filter"]["style"] == "deepObject"
    assert parameters["playerCount"]["style"] == "deepObject"
    bounds = DOCUMENT["components"]["schemas"]["PlayerBounds"]
    assert bounds["properties"] == {"lt": {"type": "integer"}, "gt": {"type": "integer"}}
    assert bounds["additionalProperties"] is False
    logs = DOCUMENT["paths"]["/logs"]["get"]["parameters"]
    assert {p["name"]: p["required"] for p in logs} == {
        "id": True,
        "follow": False,
        "offset": False,
    }


def test_headers_that_change_an_answer_are_documented() -> None:
    start = DOCUMENT["paths"]["/session"]["post"]
    assert [each["name"] for each in start["parameters"]] == ["Prefer", "traceparent"]
    for parameter in start["parameters"]:
        assert parameter["in"] == "header"
        assert "required" not in parameter
    answered = start["responses"]["201"]["headers"]
    assert answered["Location"]["required"]
    assert "required" not in answered["Preference-Applied"]
    assert "504" in start["responses"]


def test_optional_properties_have_no_default_of_null() -> None:
    """openapi-typescript treats a property with a default as required."""
    body = DOCUMENT["components"]["schemas"]["StartBody"]
    assert body["required"] == ["location", "image"]
    assert all("default" not in schema for schema in body["properties"].values())
    assert '"default": null' not in json.dumps(DOCUMENT)


async def test_the_document_is_served(system: System) -> None:
    answer = (await system.call("GET", "/openapi.json", token="none")).expect(200)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == json.loads(json.dumps(DOCUMENT))


async def test_the_page_loads_only_the_files_of_its_list(system: System) -> None:
    page = (await system.call("GET", "/docs", token="none")).expect(200)
    links = re.findall('(?:src|href)="([^"]*)"', page.text)
    assert "docs/swagger-ui-bundle.js" in links
    for link in links:
        answer = (await system.call("GET", f"/{link}", token="none")).expect(200)
        assert answer.body
        assert not re.search(rb"https?://", answer.body) or "swagger-ui" in link
    sources = dict(
        part.split(maxsplit=1) for part in page.headers["Content-Security-Policy"].split("; ")
    )
    assert sources["default-src"] == "'none'"
    allowed = {word for words in sources.values() for word in words.split()}
    assert allowed == {"'none'", "'self'", "'unsafe-inline'", "data:"}
    assert "'unsafe-inline'" not in sources["script-src"]
    for name in ("none.js", "..%2F..%2Fetc%2Fpasswd", "swagger-ui-bundle.js.map"):
        assert_error(await system.call("GET", f"/docs/{name}", token="none"), 404)


async def test_the_page_is_read_at_startup_and_not_at_import(settings: Path) -> None:
    """Without its package everything can be imported, and `serve` reports what is missing."""
    program = (
        "import sys; sys.modules['swagger_ui'] = None; import controlplane.app.control_plane\n"
        "print('imported', file=sys.stderr)\n"
        f"from controlplane.cli.main import main; main(['serve', '--config', {str(settings)!r}])"
    )
    status, _, output = await finished(sys.executable, "-c", program)
    assert status == 1
    assert output.startswith("imported\n")
    assert "swagger-ui.css" in output.splitlines()[-1]
    assert "Traceback" not in output


COMPONENTS: dict[str, Any] = DOCUMENT["components"]["schemas"]
BY_NAME = {route.handler.name: route for route in ROUTES}
KEYWORDS = {
    "$ref",
    "type",
    "enum",
    "const",
    "anyOf",
    "not",
    "default",
    "description",
    "discriminator",
    "examples",
    "title",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "maxProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "multipleOf",
    "writeOnly",
}
"""The JSON Schema keywords in use; validators ignore unknown ones, such as `ge`."""


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and every schema in it."""
    if not isinstance(part, dict):
        return
    yield part
    for schema in part.get("properties", {}).values():
        yield from _schemas(schema)
    for key in ("items", "additionalProperties", "propertyNames", "not"):
        yield from _schemas(part.get(key))
    for schema in part.get("anyOf", []):
        yield from _schemas(schema)


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


def test_schemas_use_only_known_keywords() -> None:
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
    assert used | {"ErrorResponse", "AccountEvent", "OperatorEvent"} == set(COMPONENTS)
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
        for inner in value:
            yield from _keys(inner)
