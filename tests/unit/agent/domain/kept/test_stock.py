from typing import Any

import pytest

from agent.domain.containers.engine import Container, ContainerStatus
from agent.domain.kept.prepared import Prepared, template_for
from agent.domain.kept.stock import Stock
from agent.domain.sessions.session import Port
from tests.support.agent.demands import a_shape
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import PortRequest, Protocol, Resources, SessionSpec, shape_key

SHAPE = a_shape()
KEY = shape_key(SHAPE)
OTHER = a_shape("other")


def a_container(shape: SessionSpec = SHAPE, *ports: Port) -> Prepared:
    prepared_id = an_id()
    template = template_for(prepared_id, shape, 0.0).with_changes(ports=ports)
    container = Container(f"c-{prepared_id}", "", ContainerStatus.RUNNING, {})
    return Prepared(template, container)


@pytest.fixture
def stock() -> Stock:
    return Stock()


def test_oldest_of_a_shape_is_taken(stock: Stock) -> None:
    first = a_container()
    second = a_container()
    stock.add(first)
    stock.add(second)
    assert stock.take(a_spec()) == first
    assert stock.take(a_spec()) == second
    assert stock.take(a_spec()) is None


def test_none_is_taken_for_another_shape(stock: Stock) -> None:
    stock.add(a_container())
    assert stock.take(OTHER) is None
    assert stock.take(a_spec(limits=Resources(1, 1))) is None
    assert len(stock) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": (PortRequest(7777, Protocol.UDP, pinned=20000),)},
        {"reservation": Resources(gpus=1)},
    ],
)
def test_none_is_taken_for_a_session_without_a_shape(
    stock: Stock, changes: dict[str, Any]
) -> None:
    stock.add(a_container(a_shape(**changes)))
    assert stock.take(a_spec(**changes)) is None


def test_what_was_taken_counts_until_it_is_dropped(stock: Stock) -> None:
    prepared = a_container()
    stock.add(prepared)
    assert stock.take(a_spec()) == prepared
    assert prepared not in stock
    assert len(stock) == 0
    assert stock.key(prepared) == KEY
    assert stock.kept == {KEY: [prepared.prepared_id]}
    stock.drop(prepared.prepared_id)
    assert stock.kept == {}
    assert stock.ids == set()


def test_what_is_put_back_is_taken_next(stock: Stock) -> None:
    first = a_container()
    second = a_container()
    stock.add(first)
    stock.add(second)
    stock.take(a_spec())
    stock.put_back(first)
    assert first in stock
    assert stock.take(a_spec()) == first


def test_what_is_being_prepared_counts_and_comes_last(stock: Stock) -> None:
    stock.begin("coming", KEY)
    prepared = a_container()
    stock.add(prepared)
    assert stock.kept == {KEY: [prepared.prepared_id, "coming"]}
    assert list(stock) == [prepared]


def test_prepared_container_waits_from_then_on(stock: Stock) -> None:
    prepared = a_container()
    stock.begin(prepared.prepared_id, KEY)
    stock.add(prepared)
    assert stock.kept == {KEY: [prepared.prepared_id]}
    assert stock.by_shape == {KEY: (prepared,)}


def test_drops_one_that_waits(stock: Stock) -> None:
    first = a_container()
    other = a_container(OTHER)
    stock.add(first)
    stock.add(other)
    stock.drop(first.prepared_id)
    stock.drop(first.prepared_id)
    assert list(stock) == [other]
    assert stock.waiting(KEY) == 0
    assert stock.take(a_spec()) is None
