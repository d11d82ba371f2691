"""The document and the page that describe the API."""

import json
import re
import sys
from pathlib import Path

from controlplane.api.openapi import openapi_document
from controlplane.api.operations.operation import ANYWHERE
from controlplane.api.routes import ROUTES
from tests.support.controlplane.commands import finished
from tests.support.controlplane.system import System, assert_error

DOCUMENT = openapi_document(ROUTES)


def test_every_route_is_described_with_its_scope_and_errors() -> None:
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
    for kind, name in re.findall(r'"#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"][kind]


def test_queries_and_headers_of_requests_are_documented() -> None:
    parameters = {p["name"]: p for p in DOCUMENT["paths"]["/session"]["get"]["parameters"]}
    assert set(parameters) == {"all", "location", "image", "tag", "host", "playerCount", "filter"}
    assert all(not parameter["required"] for parameter in parameters.values())
    assert parameters["all"]["schema"] == {"type": "boolean", "default": False}
    assert parameters["filter"]["style"] == parameters["playerCount"]["style"] == "deepObject"
    bounds = DOCUMENT["components"]["schemas"]["PlayerBounds"]
    assert bounds["properties"] == {"lt": {"type": "integer"}, "gt": {"type": "integer"}}
    assert bounds["additionalProperties"] is False
    logs = DOCUMENT["paths"]["/logs"]["get"]["parameters"]
    assert [(p["name"], p["required"]) for p in logs] == [("id", True), ("follow", False)]
    start = DOCUMENT["paths"]["/session"]["post"]
    [parameter] = start["parameters"]
    assert (parameter["name"], parameter["in"]) == ("Prefer", "header")
    assert "required" not in parameter
    answered = start["responses"]["201"]["headers"]
    assert answered["Location"]["required"]
    assert "required" not in answered["Preference-Applied"]
    assert "504" in start["responses"]


def test_only_these_calls_need_no_token() -> None:
    open_paths = {route.path for route in ROUTES if route.scope is None}
    documents = {"/openapi.json", "/docs", "/docs/{file}"}
    assert open_paths == {"/healthz", "/readyz", *documents}


async def test_the_document_is_served(system: System) -> None:
    answer = (await system.call("GET", "/openapi.json", token="none")).expect(200)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == json.loads(json.dumps(DOCUMENT))


def test_optional_properties_have_no_default_of_null() -> None:
    """openapi-typescript treats a property with a default as required."""
    start = DOCUMENT["components"]["schemas"]["StartBody"]
    assert start["required"] == ["location", "image"]
    assert all("default" not in schema for schema in start["properties"].values())
    assert '"default": null' not in json.dumps(DOCUMENT)


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


async def test_the_page_is_read_at_startup_and_not_at_import(tmp_path: Path) -> None:
    """Without its package everything can be imported, and `serve` reports what is missing."""
    settings = tmp_path / "controlplane.toml"
    listen = 'api_listen = "127.0.0.1:0"\nenrol_listen = ""\nmetrics_listen = ""\n'
    settings.write_text(f'state_dir = "{tmp_path}/state"\n{listen}')
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
