"""Lost answers and events of a real engine, and interference between two calls."""

import dataclasses
from collections.abc import Iterator, Mapping

import grpc
import pytest

from tests.demo_game import Image
from tests.docker.engine_proxy import EngineProxy
from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import ENDED, Agent, Machine, Player, port_of
from tests.docker.stack import a_stack, eventually
from tests.support.chaos_registry import ChaosRegistry
from tests.support.harness import Registry
from tiltyard.agent.v1 import agent_pb2 as pb

pytestmark = pytest.mark.slow

EVENTS = "GET /events$"
LIST = "GET /containers/json$"
CREATE = "POST /containers/create$"


@pytest.fixture
def proxy(machine: Machine) -> Iterator[EngineProxy]:
    with EngineProxy(machine.engine.socket) as proxy:
        yield proxy


@pytest.fixture
def agent(machine: Machine, proxy: EngineProxy) -> Iterator[Agent]:
    agent = KilledAgent(machine, ports=4, prepared=0)
    agent.settings["docker_socket"] = str(proxy.socket)
    with agent:
        yield agent


@pytest.mark.parametrize("fault", ["cut", "silent"])
def test_f12_what_happens_while_no_event_arrives_is_found_within_one_period(
    proxy: EngineProxy, agent: KilledAgent, fault: str
) -> None:
    """A live game's end is detected by its process, everything else by the next pass."""
    ended = agent.play()
    removed = agent.play()
    over = agent.play("--exit-after", "1")
    agent.end(ended)
    agent.until_sealed(ended)  # else its log has what it prints when it is started again
    eventually(lambda: proxy.count(EVENTS) > 0, "it listens")
    if fault == "cut":
        proxy.cut(EVENTS)
    else:
        proxy.silence(EVENTS)
    passes = proxy.count(LIST)
    agent.container_of(ended).start()
    agent.container_of(removed).remove(force=True)
    agent.until(removed, *ENDED)
    agent.until(over, *ENDED)
    eventually(lambda: not any(agent.processes().values()), "what was revived is ended")
    assert proxy.count(LIST) <= passes + 2  # one may have begun earlier
    assert agent.session(ended).state == pb.STATE_EXITED
    listened = proxy.count(EVENTS)
    proxy.heal()
    eventually(lambda: proxy.count(EVENTS) > listened, "it listens again")
    agent.assert_ports_agree()


@pytest.mark.parametrize("lost", [CREATE, "POST /containers/[^/]+/start$"])
def test_f14_a_start_whose_answer_is_lost_is_one_container_that_serves(
    machine: Machine, proxy: EngineProxy, agent: Agent, lost: str
) -> None:
    proxy.lose_answer(lost)
    session = agent.play()
    assert proxy.count(CREATE) == 1
    [container] = agent.containers()
    assert container.labels["io.tiltyard.session"] == session.internal_id
    with Player(machine, port_of(session)) as player:
        assert player.seen_as(session) == player.address
    agent.assert_ports_agree(session)
    agent.end(session)
    agent.assert_ports_agree()


def test_f14_a_kill_and_a_removal_whose_answers_are_lost_are_done_once(
    proxy: EngineProxy, agent: KilledAgent
) -> None:
    session = agent.play(restart=True)
    other = agent.play()
    proxy.lose_answer("POST /containers/[^/]+/kill$")
    agent.end(session)
    found = agent.session(session)
    assert found.state == pb.STATE_EXITED
    assert found.end_reason == pb.END_REASON_STOPPED
    assert found.restart_count == 0
    for _ in range(2):  # the first is sent again at once, since a removal can be repeated
        proxy.lose_answer("DELETE /containers/")
    with pytest.raises(grpc.RpcError) as error:
        agent.discard(session)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    agent.discard(session)
    assert len(agent.containers()) == 1
    agent.assert_ports_agree(other)


def test_f15_what_has_the_name_of_a_start_makes_way_for_it(
    machine: Machine, proxy: EngineProxy, agent: Agent
) -> None:
    left: list[str | None] = []

    def take_the_name(query: Mapping[str, str]) -> None:
        made = machine.client.containers.create(
            machine.image, name=query["name"], labels={"io.tiltyard.agent": agent.agent_id}
        )
        left.append(made.id)

    proxy.before(CREATE, take_the_name)
    session = agent.play()
    assert proxy.count(CREATE) == 2
    [container] = agent.containers()
    assert [container.id] != left
    agent.assert_ports_agree(session)


def test_f15_an_image_that_vanishes_before_the_create_is_a_420_and_pulled_again_once(
    machine: Machine, proxy: EngineProxy, registry: Registry, demo_image: Image
) -> None:
    host = machine.engine.network.host_address
    with ChaosRegistry(registry.address, "127.0.0.1", host) as near:
        machine.engine.network.lead_to_host(int(near.address.rpartition(":")[2]))
        image = dataclasses.replace(demo_image, address=near.address)
        with a_stack(proxy.socket, image) as stack:
            pulls = proxy.count("POST /images/create$")
            lose = machine.client.images.remove
            proxy.before(CREATE, lambda _: lose(image.reference, force=True))
            assert int(stack.try_to_start().expect(420).headers["retry-after"]) >= 1
            assert stack.containers() == {}
            assert stack.agent.directories() == set()
            eventually(lambda: proxy.count("POST /images/create$") > pulls, "it is pulled again")

            made: list[str] = []

            def starts() -> bool:
                again = stack.try_to_start()
                made.extend([again.json()["id"]] if again.status == 201 else [])
                return bool(made)

            eventually(starts, "it starts")
            assert proxy.count("POST /images/create$") == pulls + 1
            # Here, since the firewall that forwards to it is in another network namespace.
            stack.end(made[0])
