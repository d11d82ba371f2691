"""POST, GET and DELETE /session over real HTTP and real gRPC."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from yarl import URL

from controlplane.sessions.attempt import REFUSED_BY_ADMISSION
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={})


async def test_a_live_session_is_described_from_memory_until_it_changes(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.start(id="m")
    await system.until("/session/m", lambda found: found["status"] == "running")
    looks = list[str]()
    look = system.control_plane.store.look
    path = "/session/m"

    async def counting(at: Any, *args: Any) -> Any:
        looks.append(at.__name__)
        return await look(at, *args)

    monkeypatch.setattr(system.control_plane.store, "look", counting)
    first = await system.call("GET", path)
    looks.clear()
    assert (await system.call("GET", path)).body == first.body
    assert looks == []
    assert_error(await system.call("GET", path, account="bob"), 404)
    assert (await system.join("p")).status == 200
    assert (await system.read(path))["players"] == {"joined": ["p"], "joinedCount": 1}
    assert (await system.call("DELETE", path)).status == 204
    for _ in range(2):
        looks.clear()
        assert (await system.read(path))["status"] == "exited"
        assert looks == ["describe"], "only live sessions are kept"


async def test_session_is_started_as_specified_described_listed_stopped(system: System) -> None:
    body: dict[str, Any] = {
        "env": {"A": "$TILTYARD_HOST"},
        "args": ["-x", "1"],
        "restart": True,
        "ttl": "1h30m",
        "version": "v1",
        "ports": [{"container": 7778, "host": 20500}],
    }
    started = await system.start(id="match/1 ü", labels={"mode": "ffa"}, external_id="x", **body)
    assert started.status == 201
    assert started.headers["Location"] == "/session/match%2F1%20%C3%BC"
    assert started.headers["Cache-Control"] == "no-store"
    assert started.json == {
        "id": "match/1 ü",
        "host": "192.0.2.1",
        "ports": [
            {"type": "udp", "container": 7777, "host": 20000},
            {"type": "tcp", "container": 7778, "host": 20500},
        ],
    }
    spec = system.agent.started[0].spec
    assert dict(spec.env) == {"A": "$TILTYARD_HOST"}
    assert list(spec.args) == ["-x", "1"]
    assert spec.restart is True
    assert spec.ttl.seconds == 5400
    assert spec.image.startswith(f"{system.registry.address}/studio/game@sha256:")
    assert [port.pinned_host_port for port in spec.ports] == [0, 20500]
    assert spec.reservation.nano_cpus == 10**9
    assert spec.reservation.memory_bytes == 256 * 1024**2
    described = await system.read(started.headers["Location"])
    assert isinstance(described.pop("created"), int)
    assert described == {
        "id": "match/1 ü",
        "image": "game",
        "tag": "v1",
        "location": "local",
        "host": "192.0.2.1",
        "port": {"7777/udp": 20000, "7778/tcp": 20500},
        "status": "running",
        "labels": {
            "env": json.dumps({"TILTYARD_SESSION_ID": "match/1 ü"}),
            "tags": json.dumps({"mode": "ffa"}),
        },
        "players": {"joined": [], "joinedCount": 0},
        "external_id": "x",
    }
    entries = await system.read("/session?filter[mode]=ffa&playerCount[lt]=1")
    assert [entry["playerCount"] for entry in entries["sessions"]] == [0]
    stopped = await system.call("DELETE", started.headers["Location"])
    assert stopped.status == 204
    assert stopped.body == b""
    assert_error(await system.call("DELETE", started.headers["Location"]), 409)
    assert await system.read("/session") == {"sessions": []}
    every = (await system.read("/session?all=true"))["sessions"]
    assert [entry["status"] for entry in every] == ["exited"]
    await system.nothing_is_left()


async def test_null_and_empty_count_as_absent(system: System) -> None:
    nothing = dict.fromkeys(
        ("id", "env", "args", "restart", "labels", "version", "ttl", "external_id", "ports")
    )
    assert (await system.start(**nothing)).status == 201
    empty = {"env": {}, "args": [], "labels": {"k": ""}, "version": "", "external_id": ""}
    assert (await system.start(**empty)).status == 201


async def test_any_id_can_be_addressed(system: System) -> None:
    headers = {"Authorization": f"Bearer {system.tokens['alice']}"}

    async def call(method: str, path: str) -> tuple[int, Any]:
        url = URL(system.control_plane.base_url + path, encoded=True)  # keeps ".."
        async with system.http.request(method, url, headers=headers) as response:
            return response.status, await response.read()

    for session_id in (
        "a/b",
        "a%2Fb",
        "a b",
        "ü",
        "?x=1#y",
        "+",
        "..",
        "%",
        "a\\b",
        "{",
        "}",
        "ä {x:.*}/{}",
        "{id}",  # as in the path of the route
    ):
        started = (await system.start(id=session_id)).expect(201)
        for path in (started.headers["Location"], f"/session/{quote(session_id, safe='')}"):
            status, body = await call("GET", path)
            assert status == 200, body
            assert json.loads(body)["id"] == session_id
        assert await call("DELETE", started.headers["Location"]) == (204, b"")


@pytest.mark.parametrize("reason", sorted(REFUSED_BY_ADMISSION))
async def test_a_refusal_by_admission_leaves_nothing(system: System, reason: str) -> None:
    system.agent.before_start = refusing(reason.upper())
    assert "Retry-After" in assert_error(await system.start(id="again"), 420).headers
    await system.nothing_is_left()
    assert_error(await system.call("GET", "/session/again"), 404)
    assert await system.rows("SELECT 1 FROM stop_order") == []
    system.agent.before_start = None
    assert (await system.start(id="again")).status == 201


async def test_an_image_that_cannot_run_is_420_without_a_retry(system: System) -> None:
    system.agent.before_start = refusing("IMAGE_CANNOT_RUN", "no such entrypoint")
    answer = assert_error(await system.start(), 420, details="no such entrypoint")
    assert "Retry-After" not in answer.headers
    assert len(system.agent.started) == 1
    await system.nothing_is_left()


async def test_a_variable_that_the_host_reserves_is_422(system: System) -> None:
    system.agent.before_start = refusing("INVALID_ARGUMENT", "GAMEYE_HOST is reserved")
    assert_error(await system.start(env={"GAMEYE_HOST": "x"}), 422, "body", details="GAMEYE_HOST")
    await system.nothing_is_left()


async def test_a_process_that_ends_at_once_is_201_and_exited(system: System) -> None:
    system.agent.start_state = agent_pb2.STATE_EXITED
    assert (await system.start(id="short")).status == 201
    assert await system.status_of("short") == "exited"
    await system.nothing_is_left()


async def test_changes_on_the_host_are_seen(system: System) -> None:
    await system.start(id="s")
    (internal_id,) = system.agent.sessions
    system.agent.change(internal_id, state=agent_pb2.STATE_RESTARTING)
    await system.becomes("s", "restarting")
    system.agent.change(internal_id, state=agent_pb2.STATE_RUNNING)
    await system.becomes("s", "running")
    system.agent.change_host(draining=True)
    await system.becomes("s", "draining")
    assert len((await system.read("/session"))["sessions"]) == 1
    system.agent.change_host(draining=False)
    await system.becomes("s", "running")
    system.agent.end(internal_id)
    await system.becomes("s", "exited")


async def test_a_list_is_filtered(system: System) -> None:
    await system.start(id="a", labels={"m": "1"})
    await system.start(id="b", labels={"m": "2", "empty": ""})
    cases: list[tuple[str, set[str]]] = [
        ("", {"a", "b"}),
        ("location=local&image=game&tag=v1&host=192.0.2.1", {"a", "b"}),
        ("location=elsewhere", set()),
        *((f"all=1&{name}=", set()) for name in ("location", "image", "tag", "host")),
        ("filter[m]=", set()),
        ("filter[empty]=", {"b"}),
        ("filter[m]=1", {"a"}),
        ("filter[m]=1&filter[n]=2", set()),
        ("playerCount[gt]=-1&playerCount[lt]=99999999999999999999999", {"a", "b"}),
        ("playerCount[gt]=0", set()),
        ("whatever=1", {"a", "b"}),
        *((query, set()) for query in ("tag=%ED%A0%80", "filter[m]=%FF", "host=%00")),
        ("filter[%ED%A0%80]=1", set()),
    ]
    for query, found in cases:
        entries = (await system.read(f"/session?{query}"))["sessions"]
        assert {entry["id"] for entry in entries} == found, query


async def test_an_empty_filter_finds_no_session_whose_host_is_not_known_yet(
    system: System,
) -> None:
    start, release = await system.held_start(id="soon")
    await system.becomes("soon", "created")
    assert await system.read("/session") == {"sessions": []}
    await system.rows("UPDATE session SET host='', tag='' WHERE id='soon'")
    found = [
        (await system.read(f"/session?all=true{query}"))["sessions"]
        for query in ("", "&host=", "&tag=")
    ]
    release.set()
    assert (await start).status == 201
    assert [len(sessions) for sessions in found] == [1, 0, 0]


async def test_a_stop_that_cannot_kill_is_503(system: System) -> None:
    await system.start(id="s")
    system.agent.before_stop = refusing("CANNOT_KILL")
    answer = await system.call("DELETE", "/session/s")
    assert_error(answer, 503, details="SIGKILL did not end the game")
