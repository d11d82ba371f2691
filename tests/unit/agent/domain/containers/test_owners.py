"""Which session has a container."""

from agent.domain.containers.engine import (
    LABEL_PREPARED,
    LABEL_SESSION,
    Container,
    ContainerStatus,
    container_name,
    prepared_name,
)
from agent.domain.containers.owners import Owned, assign
from tests.support.agent.samples import a_session, an_id


def a_container(name: str, **labels: str) -> Container:
    named = {
        {"session": LABEL_SESSION, "prepared": LABEL_PREPARED}[key]: labels[key] for key in labels
    }
    return Container(f"id-of-{name}", name, ContainerStatus.RUNNING, named)


def test_container_of_a_session_names_it_in_its_label() -> None:
    internal_id = an_id()
    found = a_container("any", session=internal_id)
    assert assign([found], []) == ([Owned(internal_id, found)], [])


def test_prepared_container_belongs_to_the_session_whose_record_names_it() -> None:
    found = a_container(container_name(an_id()), prepared=an_id())
    session = a_session(container=found.container)
    other = a_session(container="id-of-another")
    assert assign([found], [other, session]) == ([Owned(session.internal_id, found)], [])


def test_prepared_container_without_a_record_belongs_to_the_session_of_its_name() -> None:
    internal_id = an_id()
    found = a_container(container_name(internal_id), prepared=an_id())
    assert assign([found], [a_session()]) == ([Owned(internal_id, found)], [])


def test_prepared_container_with_another_name_belongs_to_no_session() -> None:
    prepared_id = an_id()
    containers = [
        a_container(prepared_name(prepared_id), prepared=prepared_id),
        a_container(f"tiltyard-{an_id().upper()}", prepared=an_id()),
        a_container("mine", prepared=an_id()),
    ]
    assert assign(containers, [a_session()]) == ([], containers)


def test_name_alone_makes_no_session_of_a_container_that_was_not_prepared() -> None:
    assert assign([a_container(container_name(an_id()))], []) == ([], [])
