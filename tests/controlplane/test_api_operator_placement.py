"""GET /operator/placement and its command: what is reported is what a start does."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from controlplane.fleet.host import watch
from tests.controlplane.operator_commands import Operated, cells
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import Answer, assert_error, eventually, eventually_equals
from tests.support.hold import Hold

PIN = {"ports[7777/udp]": "25000"}
PINNED = [{"container": 7777, "host": 25000}]
COMMAND = ("placement", "game", "local", "--account", "alice")
GPU = {"cpu": 1, "ram": 256, "gpu": 1}


class Explained(Operated):
    async def ask(self, **query: str) -> Answer:
        params = {"account": "alice", "image": "game", "location": "local"} | query
        return await self.call("GET", "/operator/placement", params=params)

    async def hosts(self, **query: str) -> dict[str, dict[str, Any]]:
        answer = (await self.ask(**query)).expect(200)
        return {host["agent"]: host for host in answer.json["hosts"]}

    async def kinds(self, **query: str) -> dict[str, list[str]]:
        found = await self.hosts(**query)
        assert all((host["rank"] is None) == bool(host["obstacles"]) for host in found.values())
        return {name: [o["kind"] for o in host["obstacles"]] for name, host in found.items()}

    async def become(self, kinds: dict[str, list[str]], **query: str) -> None:
        await eventually_equals(lambda: self.kinds(**query), kinds)


pytestmark = pytest.mark.system(kind=Explained, agents=2, application={})


async def test_the_host_of_rank_1_gets_the_next_session(system: Explained) -> None:
    for strategy in ("packed", "spread", "packed"):
        await system.call("PUT", "/operator/node-pool/default", json={"strategy": strategy})
        for _ in range(3):
            before = {agent.name: len(agent.started) for agent in system.agents}
            answer = (await system.ask()).json
            assert answer["strategy"] == strategy
            assert [host["rank"] for host in answer["hosts"]] in ([1, 2], [1, 1])
            first = {host["agent"] for host in answer["hosts"] if host["rank"] == 1}
            assert (await system.start()).status == 201
            assert {a.name for a in system.agents if len(a.started) > before[a.name]} <= first


async def test_the_request_and_each_hosts_figures_are_shown(system: Explained) -> None:
    system.link().state.latency.note("192.0.2.1", 0.00126)
    system.agents[1].change_host(draining=True)
    await system.become({"a0": [], "a1": ["draining"]})
    answer = (await system.ask()).json
    (first, second) = answer.pop("hosts")
    assert answer == {
        "account": "alice",
        "image": "game",
        "location": "local",
        "nodePool": "default",
        "strategy": "packed",
        "tag": "v1",
        "reservation": {"cpu": 1.0, "ram": 256.0, "gpu": 0},
    }
    assert 0 <= first.pop("reportAge") < 5
    assert first == {
        "agent": "a0",
        "rank": 1,
        "obstacles": [],
        "pull": None,
        "failure": None,
        "inDoubt": False,
        "fullness": 0.0,
        "latency": 1.26,
        "free": {"cpu": 64.0, "ram": 65536.0, "gpu": 0},
        "held": {"cpu": 0.0, "ram": 0.0, "gpu": 0},
        "freeSessions": 1000,
        "starting": 0,
        "startSlots": 8,
        "prepared": 0,
    }
    assert second["agent"] == "a1"
    assert second["rank"] is None


async def test_all_obstacles_of_a_host_are_shown(system: Explained) -> None:
    one, other = system.agents
    one.host.capacity.Clear()
    one.change_host(draining=True, engine_available=False, free_sessions=0, start_slots=0)
    other.change_host(free_tcp_ports=0, free_udp_ports=0, port_range_first=26000, disk_full=True)
    await system.become(
        {
            "a0": ["engine_unavailable", "draining", "sessions", "cpu", "ram", "busy"],
            "a1": ["disk_full", "tcp_ports", "udp_ports", "port_out_of_range"],
        },
        **PIN,
    )
    assert [o["details"] for o in (await system.hosts(**PIN))["a0"]["obstacles"]] == [
        "its Docker Engine does not answer",
        "is drained: it takes no new sessions",
        "sessions: 1 wanted, 0 free",
        "cores: 1 wanted, 0 free",
        "MiB of memory: 256 wanted, 0 free",
        "0 starts are in progress of at most 0, 0 of this account: the next one waits",
    ]
    assert_error(await system.start(ports=PINNED), 420)


@pytest.mark.system(kind=Explained, unresponsive_after=0.1, application={})
async def test_hosts_without_reports_are_connecting_or_unresponsive(system: Explained) -> None:
    await system.add_agent("late")
    await system.become({"late": ["connecting"], "a0": ["unresponsive"]})
    late = (await system.hosts())["late"]
    assert late.pop("agent") == "late"
    assert late.pop("obstacles")[0]["details"] == "has not reported what runs there yet"
    assert set(late.values()) == {None}


async def test_resources_held_by_a_start_in_progress_are_shown(system: Explained) -> None:
    one, other = system.agents
    other.change_host(draining=True)
    one.change_host(start_slots=1)
    await system.become({"a0": [], "a1": ["draining"]})
    gate = one.before_start = Hold()
    async with asyncio.TaskGroup() as group:
        start = group.create_task(system.start())
        await system.become({"a0": ["busy"], "a1": ["draining"]})
        host = (await system.hosts())["a0"]
        assert host["starting"] == 1
        assert host["startSlots"] == 1
        assert host["freeSessions"] == 999
        assert host["held"] == {"cpu": 1.0, "ram": 256.0, "gpu": 0}
        assert host["free"] == {"cpu": 63.0, "ram": 65280.0, "gpu": 0}
        gate.set()
    assert start.result().status == 201


async def test_a_pinned_port_is_placed_where_it_is_free(system: Explained) -> None:
    for taken in range(2):
        kinds = sorted((await system.kinds(**PIN)).values())
        assert kinds == [[]] * (2 - taken) + [["port_taken"]] * taken
        assert (await system.start(ports=PINNED)).status == 201
    assert [len(agent.live) for agent in system.agents] == [1, 1]
    await system.become({"a0": ["port_taken"], "a1": ["port_taken"]}, **PIN)
    details = [host["obstacles"][0]["details"] for host in (await system.hosts(**PIN)).values()]
    assert details == ["25000/udp is taken"] * 2
    assert_error(await system.start(ports=PINNED), 420)
    assert await system.kinds() == {"a0": [], "a1": []}


async def test_tls_ports_are_placed_where_there_is_a_certificate(system: Explained) -> None:
    ports = [{"requested": 7778, "protocol": "tcp", "tls": True}]
    await system.make_application(name="web", ports=ports)
    assert await system.kinds(image="web") == {"a0": ["tls_missing"], "a1": ["tls_missing"]}
    assert_error(await system.start(image="web"), 420)
    system.agents[1].change_host(tls=True)
    await system.become({"a0": ["tls_missing"], "a1": []}, image="web")
    assert (await system.start(image="web")).status == 201


async def test_gpus_are_placed_where_there_are_some_and_not_twice(system: Explained) -> None:
    await system.make_application(name="lab", limits=GPU, reservation=GPU)
    assert await system.kinds(image="lab") == {"a0": ["gpu"], "a1": ["gpu"]}
    assert_error(await system.start(image="lab"), 420)
    system.agents[1].host.capacity.gpus = 1
    system.agents[1].change_host()
    await system.become({"a0": ["gpu"], "a1": []}, image="lab")
    assert (await system.start(image="lab")).status == 201
    assert system.agents[1].started[0].spec.reservation.gpus == 1
    system.agents[1].host.reserved.gpus = 1
    system.agents[1].change_host()
    await system.become({"a0": ["gpu"], "a1": ["gpu"]}, image="lab")
    assert_error(await system.start(image="lab"), 420)


async def test_a_missing_image_is_shown_with_its_pull(system: Explained) -> None:
    for agent in system.agents:
        agent.before_pull = refusing("REGISTRY_UNAVAILABLE", "no such host")
    await system.enable("v2", pulled_by=())
    await system.become({"a0": ["image_missing"], "a1": ["image_missing"]}, version="v2")

    async def failed() -> bool:  # it is retried: one look could find it pulling
        pull = (await system.hosts(version="v2"))["a0"]["pull"]
        failing = pull and pull["state"] == "failed" and "no such host" in pull["cause"]
        shown = await system.ok(*COMMAND, "--version", "v2")
        printed = ("has not pulled the image; its pull is failed: ", "no such host")
        return bool(failing) and all(part in shown for part in printed)

    await eventually(failed)
    assert_error(await system.start(version="v2"), 404)
    answer = (await system.ask()).json  # without a version it is the tag that a start would run
    assert answer["tag"] == "v1"
    assert [host["rank"] for host in answer["hosts"]] == [1, 1]


@pytest.mark.system(
    kind=Explained, agents=2, in_order=True, unresponsive_after=3600.0, application={}
)
async def test_host_that_did_not_answer_a_start_is_in_doubt_until_its_next_report(
    system: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MESSAGE_TIMEOUT", 3600.0)
    first, _ = system.agents

    async def ranks() -> dict[str, tuple[int, bool]]:
        return {
            name: (host["rank"], host["inDoubt"]) for name, host in (await system.hosts()).items()
        }

    async def dies(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    first.before_start = dies
    first.beat = 3600.0
    first.change_host(free_sessions=500)  # the next message is not a heartbeat
    await system.has_reported("a0", free_sessions=500)
    assert await ranks() == {"a0": (1, False), "a1": (2, False)}
    assert (await system.start()).status == 201
    assert await ranks() == {"a0": (2, True), "a1": (1, False)}
    why_not = "did not carry out a call: it comes last until its next report"
    assert why_not in await system.ok(*COMMAND)
    first.send_heartbeat()
    await eventually_equals(ranks, {"a0": (1, False), "a1": (2, False)})
    assert why_not not in await system.ok(*COMMAND)


async def test_hosts_of_other_regions_and_node_pools_are_omitted(system: Explained) -> None:
    await system.edit(regions=["local", "elsewhere"])
    assert await system.hosts(location="elsewhere") == {}
    await system.call("PUT", "/operator/node-pool/big", json={})
    await system.edit(nodePool="big")
    answer = (await system.ask()).json
    assert answer["nodePool"] == "big"
    assert answer["hosts"] == []


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"account": "bob"}, "application"),
        ({"account": "unknown"}, "application"),
        ({"image": "none"}, "application"),
        ({"location": "elsewhere"}, "region"),
        ({"version": "v9"}, "tag"),
    ],
)
async def test_unknown_names_are_404_as_for_starts(
    system: Explained, query: dict[str, str], kind: str
) -> None:
    answer = assert_error(await system.ask(**query), 404)
    assert answer.json["message"] == f"{kind} not found"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", ""),
        ("ports[1/udp]", "25000"),
        ("ports[7777/tcp]", "25000"),
        ("ports[7777]", "25000"),
        ("ports", "25000"),
        ("ports[7777/udp]", "0"),
        ("ports[7777/udp]", "65536"),
        ("ports[7777/udp]", "x"),
    ],
)
async def test_bad_queries_are_422(system: Explained, field: str, value: str) -> None:
    assert_error(await system.ask(**{field: value}), 422, field)


async def test_the_command_shows_the_hosts_and_why_not(system: Explained) -> None:
    system.link().state.latency.note("192.0.2.1", 0.012345)
    system.agents[1].change_host(free_sessions=0, draining=True)
    await system.become({"a0": [], "a1": ["draining", "sessions"]})
    head, _, table = (await system.ok(*COMMAND)).partition("\n")
    asks = "asks for CPU 1, RAM 256 MiB; node pool default is packed"
    assert head == f"alice/game:v1 in local {asks}"
    why_not = "is drained: it takes no new sessions; sessions: 1 wanted, 0 free"
    assert cells(table) == [
        ["RANK", "AGENT", "FULL", "LATENCY", "FREE", "WHY NOT"],
        ["1", "a0", "0%", "12.3 ms", "CPU 64, RAM 64 GiB", "-"],
        ["-", "a1", "0%", "-", "CPU 64, RAM 64 GiB", why_not],
    ]
    assert [host["LATENCY"] for host in await system.listed()] == ["12.3 ms", "-"]
    assert "UNRESPONSIVE ADDRESSES  -" in await system.ok("agent", "show", "a0")
    pinned = await system.ok(*COMMAND, "--port", "7777/udp=19000", "--version", "v1")
    assert "19000/udp is outside its port range" in pinned
    printed = json.loads(await system.ok(*COMMAND, "--json"))
    assert [host["agent"] for host in printed["hosts"]] == ["a0", "a1"]
    refused = await system.refused("placement", "game", "local")
    assert refused == "cannot explain placement: cannot find application 'game'\n"
    assert (await system.run(*COMMAND, "--port", "7777/udp")).exit_code == 2
