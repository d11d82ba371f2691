"""A client generated from the OpenAPI document can play a session."""

import asyncio
import io
import os
import pkgutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.flow.whole import Whole
from tests.support.controlplane.system import APPLICATION, eventually

CONFIG = """
post_hooks: []   # they would run ruff on the generated code
content_type_overrides:
  application/x-tar: application/octet-stream   # those that it can parse
"""
GENERATOR = Path(sys.executable).with_name("openapi-python-client")
PACKAGE = "generated_tiltyard"


def generate(document: bytes, folder: Path) -> None:
    """Generate the package in `folder` offline; a warning is a failure."""
    config = folder / "generator.yml"
    described = folder / "openapi.json"
    config.write_text(CONFIG)
    described.write_bytes(document)
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    files = (f"--path={described}", f"--config={config}", f"--output-path={folder / PACKAGE}")
    done = subprocess.run(
        [GENERATOR, "generate", "--fail-on-warning", "--meta=none", *files],
        env={**os.environ, **nowhere},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr


@dataclass(frozen=True)
class Generated:
    """The package, with operations and models by their names in the document."""

    operations: Mapping[str, Any]
    models: Any
    package: Any

    def body(self, model: str, content: Mapping[str, Any]) -> Any:
        return getattr(self.models, model).from_dict(content)


@contextmanager
def imported(folder: Path) -> Iterator[Generated]:
    """Import the generated package."""
    sys.path.insert(0, str(folder))
    try:
        package = import_module(PACKAGE)
        models = import_module(f"{PACKAGE}.models")
        api = import_module(f"{PACKAGE}.api")
        modules = pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
        found = {m.name.rpartition(".")[2]: import_module(m.name) for m in modules if not m.ispkg}
        yield Generated(found, models, package)
    finally:
        sys.path.remove(str(folder))


async def test_a_session_is_played_with_a_generated_client(tmp_path: Path) -> None:
    async with Whole(tmp_path) as whole:
        whole.registry.push("studio/game", "v1")
        document = (await whole.call("GET", "/openapi.json")).body
        await asyncio.to_thread(generate, document, tmp_path)
        with imported(tmp_path) as api:
            async with api.package.AuthenticatedClient(
                base_url=whole.control_plane.base_url,
                token=whole.tokens["alice"],
                raise_on_unexpected_status=True,
            ) as client:
                await play(api, client, whole)


async def play(api: Generated, client: Any, whole: Whole) -> None:
    """Play one session from the application to its files."""
    small = {"cpu": 1, "ram": 64}
    application = APPLICATION | {"limits": small, "reservation": small}

    async def call(operation: str, *path: str, status: int, **more: Any) -> Any:
        answer = await api.operations[operation].asyncio_detailed(*path, client=client, **more)
        assert answer.status_code == status, answer.content
        return answer.parsed

    name = "game"
    region = "local"
    tag = "v1"
    assert region in (await call("list_regions", status=200)).regions
    await call("create_application", status=201, body=api.body("ApplicationBody", application))
    [listed] = (await call("list_applications", status=200)).applications
    assert listed.to_dict().items() >= {"name": name, "regions": [region]}.items()
    await call("enable_tag", name, status=204, body=api.models.TagBody(tag=tag))

    async def pulled() -> bool:
        return bool((await call("tag_exists", region, name, tag, status=200)).exists)

    await eventually(pulled)
    [location] = (await call("available_locations", name, status=200)).locations
    assert location.id == region

    wanted = {"location": region, "image": name, "labels": {"mode": "duel"}, "ttl": "1h"}
    session = await call("start_session", status=201, body=api.body("StartBody", wanted))
    [container] = whole.host.live
    whole.engine.write_log(container, b"here we go\n")
    whole.engine.find(container).put_file("/data/save.json", b"{}")
    described = await call("get_session", session.id, status=200)
    assert described.status == api.models.SessionStatus.RUNNING
    assert {f"{port.container}/{port.type_}": port.host for port in session.ports} == (
        described.port.additional_properties
    )

    players = ["ann", "bob"]
    join = api.models.JoinBody(session=session.id, players=players)
    assert (await call("join_players", status=200, body=join)).players == players
    leave = api.models.LeaveBody(session=session.id, players=["ann"])
    assert (await call("leave_players", status=200, body=leave)).count == 1
    # The generator does not support deepObject, but passes on unknown parameters.
    for mode, ids in {"duel": [session.id], "race": []}.items():
        labels = api.body("ListSessionsFilter", {"filter[mode]": mode})
        found = await call("list_sessions", status=200, image=name, tag=tag, filter_=labels)
        assert [one.id for one in found.sessions] == ids
    assert (await call("list_sessions", status=200, location="elsewhere")).sessions == []

    assert b"here we go" in (await call("stream_logs", status=200, id=session.id)).encode()
    await call("stop_session", session.id, status=204)
    assert (await call("list_sessions", status=200)).sessions == []
    [ended] = (await call("list_sessions", status=200, all_=True)).sessions
    assert ended.status == api.models.SessionStatus.EXITED
    assert ended.player_count == 0  # players go with the end
    archive = await call("fetch_artifact", status=200, session=session.id, path="/data/save.json")
    with tarfile.open(fileobj=io.BytesIO(archive.payload.read())) as tar:
        assert tar.getnames() == ["save.json"]

    token = api.body("TokenBody", {"name": "reader", "scopes": ["session:read"]})
    assert (await call("make_token", status=201, body=token)).token.startswith("ty_")

    gone = await call("get_session", "none", status=404)
    assert isinstance(gone, api.models.ErrorResponse)
    assert gone.status_code == 404
    assert gone.code == api.models.ErrorResponseCode.RESOURCE_NOT_FOUND
    wrong = api.body("StartBody", wanted | {"id": "", "ttl": "soon"})
    refused = await call("start_session", status=422, body=wrong)
    assert isinstance(refused, api.models.ErrorResponse)
    assert [one.field for one in refused.violations] == ["id", "ttl"]
