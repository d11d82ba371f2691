"""Calls without a token: health, the OpenAPI document and a bundled Swagger UI."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import services_of
from controlplane.domain.errors import NotFoundError, NotReadyError
from controlplane.http.messages import JSON

OPENAPI = web.AppKey("openapi", bytes)  # The document, serialised

_FILES = web.AppKey("docs_files", dict[str, bytes])

_POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Tiltyard API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# A typed token is not written to the browser's storage.
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
});
"""
_TYPES = {".css": "text/css", ".js": "text/javascript", ".png": "image/png"}


async def read_files(app: web.Application) -> None:
    """Read the files of Swagger UI; a startup hook."""
    with ThreadPoolExecutor(1, "docs") as thread:
        app[_FILES] = await asyncio.get_running_loop().run_in_executor(thread, _packaged)


def _packaged() -> dict[str, bytes]:
    """Read Swagger UI without importing its package, which would load a template engine."""
    spec = find_spec("swagger_ui")
    folder = Path(((spec and spec.submodule_search_locations) or ["."])[0]) / "static"
    names = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
    return {name: (folder / name).read_bytes() for name in names} | {"start.js": _START.encode()}


class Health(TypedDict):
    """Liveness of the process."""

    status: Literal["ok"]
    environment: str


class Readiness(TypedDict):
    """Readiness of the control plane."""

    ready: Literal[True]


@operation()
async def get_health(request: web.Request) -> Answer[Health]:
    """Report that the process is up, and the name of its environment."""
    return Answer({"status": "ok", "environment": services_of(request).environment})


@operation()
async def get_ready(request: web.Request) -> Answer[Readiness]:
    """Report whether every agent has reconciled or is known to be unreachable."""
    if not services_of(request).fleet.ready:
        raise NotReadyError
    return Answer({"ready": True})


@operation(media_types=(JSON,))
async def get_openapi(request: web.Request) -> web.Response:
    """Describe this API as an OpenAPI document."""
    return web.Response(body=request.app[OPENAPI], content_type=JSON)


@operation(media_types=("text/html",))
async def get_docs(request: web.Request) -> web.Response:
    """Show this API in a browser."""
    return web.Response(text=_PAGE, content_type="text/html", headers=_POLICY)


@operation(media_types=tuple(_TYPES.values()))
async def get_docs_file(request: web.Request) -> web.Response:
    """Fetch a file of the documentation page."""
    name = request.match_info["file"]
    files = request.app[_FILES]
    if name not in files:
        raise NotFoundError("file", name)
    headers = {**_POLICY, "Cache-Control": "max-age=86400"}
    return web.Response(body=files[name], content_type=_TYPES[Path(name).suffix], headers=headers)
