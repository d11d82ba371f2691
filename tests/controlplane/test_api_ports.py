"""`contiguous` of an application, and `same` of its ports."""

from typing import Any

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import APPLICATION, System, assert_error

UDP = {"requested": 7777, "protocol": "udp", "tls": False}
QUERY = {"requested": 7778, "protocol": "udp", "tls": False}
TLS = {"requested": 443, "protocol": "tcp", "tls": True}


async def application(system: System) -> Any:
    return (await system.read("/application"))["applications"][0]


@pytest.mark.system(application={"tag": None})
async def test_same_of_a_port_is_shown_if_it_is_set(system: System) -> None:
    same = QUERY | {"same": True}
    ports = [UDP | {"same": False}, same, TLS | {"same": None}]
    assert (await system.edit(ports=ports)).status == 204
    assert await application(system) == APPLICATION | {"ports": [UDP, same, TLS]}


@pytest.mark.parametrize(
    ("port", "field"),
    [
        (TLS | {"same": True}, "ports[0].same"),
        (UDP | {"same": "true"}, "ports[0].same"),
        (UDP | {"same": 1}, "ports[0].same"),
        (UDP | {"other": True}, "ports[0].other"),
    ],
)
@pytest.mark.system(application={"tag": None})
async def test_bad_same_is_refused(system: System, port: dict[str, Any], field: str) -> None:
    changes: dict[str, Any] = {"ports": [port], "contiguous": True}
    assert_error(await system.edit(**changes), 422, field)
    created = APPLICATION | changes | {"name": "other"}
    assert_error(await system.call("POST", "/application", json=created), 422, field)
    assert await application(system) == APPLICATION


async def test_host_is_asked_for_neighbours(system: System) -> None:
    ports = [UDP | {"same": True}, QUERY]
    await system.make_application(ports=ports, contiguous=True)
    started = (await system.start()).expect(201)
    assert [port["container"] for port in started.json["ports"]] == [7777, 7778]
    [request] = system.agent.started
    assert request.spec.contiguous
    assert [port.same for port in request.spec.ports] == [True, False]
    assert [port.pinned_host_port for port in request.spec.ports] == [0, 0]


async def test_pin_decides_the_ports_beside_it(system: System) -> None:
    await system.make_application(ports=[UDP, QUERY], contiguous=True)
    started = (await system.start(ports=[{"container": 7778, "host": 25000}])).expect(201)
    assert [port["host"] for port in started.json["ports"]] == [24999, 25000]
    wrong = [{"container": 7777, "host": 65535}]
    assert_error(await system.start(ports=wrong), 422, "ports[0].host")


async def test_same_port_cannot_have_the_number_of_another_port(system: System) -> None:
    await system.make_application(ports=[UDP | {"same": True}, QUERY])
    wrong = [{"container": 7777, "host": 7778}]
    assert_error(await system.start(ports=wrong), 422, "ports[0].host")


async def test_session_without_free_neighbours_is_not_started(system: System) -> None:
    await system.make_application(ports=[UDP, QUERY], contiguous=True)
    system.agent.before_start = refusing("NO_FREE_PORT")
    answer = await system.start()
    assert_error(answer, 420)
    assert "Retry-After" in answer.headers
