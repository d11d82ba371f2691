"""Containers that are prepared before a session needs them."""

import pytest

from agent.domain import errors
from agent.domain.containers.engine import (
    LABEL_PREPARED,
    LABEL_SESSION,
    Container,
    InitState,
    prepared_name,
)
from agent.domain.kept.prepared import Prepared, template_for
from agent.domain.sessions.session import Session
from agent.sessions import containers
from agent.state.encoding import decode_label
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tiltyard.contract import Protocol


def a_template(agent: Agent) -> Session:
    """The template of a container to prepare, which holds its ports."""
    shape = a_spec().shape
    assert shape is not None
    template = template_for(an_id(), shape, agent.clock.time())
    return agent.reservations.swap_ports(template)


async def prepared(agent: Agent) -> Prepared:
    return await containers.prepare(agent.runtime, agent.reservations, a_template(agent))


async def only_container(agent: Agent) -> Container:
    [found] = await agent.engine.list(agent.runtime.agent_id)
    return found


async def test_prepared_container_waits_and_belongs_to_no_session(agent: Agent) -> None:
    made = await prepared(agent)
    assert made.container.init is InitState.WAITING
    found = await only_container(agent)
    assert found.container == made.container.container
    assert found.name == prepared_name(made.prepared_id)
    assert found.labels[LABEL_PREPARED] == made.prepared_id
    assert LABEL_SESSION not in found.labels
    assert decode_label(found.labels) == made.template
    assert agent.sessions.all() == []
    assert agent.engine.executed == {}


async def test_program_of_a_prepared_container_is_looked_up_before_its_start(
    agent: Agent,
) -> None:
    await prepared(agent)
    assert agent.engine.count("program") == 1


async def test_image_without_a_command_is_prepared(agent: Agent) -> None:
    """A start can name what it executes."""
    agent.engine.programs[IMAGE] = ((), ())
    made = await prepared(agent)
    assert made.container.init is InitState.WAITING


async def test_flows_to_the_ports_of_a_prepared_container_are_flushed_once_it_waits(
    agent: Agent,
) -> None:
    made = await prepared(agent)
    assert agent.flows_forgotten == [made.template.ports]


async def test_prepared_container_gets_other_ports_when_the_engine_finds_one_in_use(
    agent: Agent,
) -> None:
    agent.engine.ports.occupy("udp", 20000)
    made = await prepared(agent)
    ports = [port.host for port in made.template.ports if port.protocol is Protocol.UDP]
    assert 20000 not in ports
    found = await only_container(agent)
    assert decode_label(found.labels).ports == made.template.ports
    await agent.runtime.end_run(made.prepared_id)
    agent.reservations.ports.release(made.prepared_id)
    assert agent.nothing_is_held()


async def test_container_that_cannot_be_prepared_is_tried_with_three_sets_of_ports(
    agent: Agent,
) -> None:
    taken = errors.PortTakenError("udp", 20000)
    agent.engine.fail_next("start", taken, times=containers.PORT_TRIES)
    with pytest.raises(errors.PortTakenError):
        await prepared(agent)
    assert agent.engine.count("start") == containers.PORT_TRIES


@pytest.mark.parametrize("call", ["create", "start"])
async def test_lost_answer_of_the_engine_does_not_fail_a_preparation(
    agent: Agent, call: str
) -> None:
    agent.engine.answer_lost_next(call)
    made = await prepared(agent)
    assert made.container.init is InitState.WAITING
