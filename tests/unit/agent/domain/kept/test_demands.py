import pytest

from agent.domain.kept.demands import Demands
from agent.domain.kept.preparation import FORGOTTEN_SECONDS, MOST_CONTAINERS, REVIEW_SECONDS
from tests.support.agent.demands import NOW, a_shape
from tiltyard.contract import SessionSpec, shape_key

SHAPE = a_shape()
KEY = shape_key(SHAPE)
OTHER = a_shape("other")


@pytest.fixture
def demands() -> Demands:
    return Demands()


def miss(demands: Demands, shape: SessionSpec = SHAPE, *, now: float = NOW) -> None:
    demands.note_missed(shape_key(shape), shape, now, most=16)


def test_first_start_of_a_shape_asks_for_one(demands: Demands) -> None:
    miss(demands)
    assert demands[KEY].wanted == 1
    assert demands[KEY].last_start == NOW
    assert not demands[KEY].ordered


def test_each_further_miss_asks_for_one_more(demands: Demands) -> None:
    miss(demands)
    miss(demands)
    miss(demands)
    assert demands[KEY].wanted == 3


def test_order_asks_for_one(demands: Demands) -> None:
    demands.order([SHAPE], NOW)
    assert demands[KEY].wanted == 1
    assert demands[KEY].ordered
    assert demands[KEY].last_start is None


def test_order_replaces_the_one_before_and_leaves_the_starts(demands: Demands) -> None:
    miss(demands)
    miss(demands)
    demands.order([SHAPE], NOW)
    demands.order([OTHER], NOW)
    assert not demands[KEY].ordered
    assert demands[KEY].wanted == 2
    assert demands[shape_key(OTHER)].ordered


def test_shape_that_is_no_longer_ordered_and_not_started_is_dropped(demands: Demands) -> None:
    demands.order([SHAPE], NOW)
    demands.order([], NOW)
    demands.review(NOW, {})
    assert len(demands) == 0


def test_containers_of_an_earlier_run_are_wanted(demands: Demands) -> None:
    demands.note_found(KEY, SHAPE, NOW)
    assert demands[KEY].wanted == 1
    demands.note_found(KEY, SHAPE, NOW)
    assert demands[KEY].wanted == 2
    assert demands[KEY].last_start == NOW


def test_taken_container_is_noted(demands: Demands) -> None:
    miss(demands)
    demands.note_taken(KEY, NOW + 5, waiting=0)
    assert demands[KEY].last_start == NOW + 5
    demands.note_taken("unknown", NOW, waiting=0)
    assert list(demands) == [KEY]


def test_image_is_forgotten_with_all_its_shapes(demands: Demands) -> None:
    miss(demands)
    miss(demands, OTHER)
    kept = a_shape(image="another")
    miss(demands, kept)
    demands.forget_image(SHAPE.image)
    assert list(demands) == [shape_key(kept)]


def test_review_lowers_and_drops(demands: Demands) -> None:
    miss(demands)
    miss(demands)
    demands.review(NOW + REVIEW_SECONDS, {KEY: 2})
    assert demands[KEY].wanted == 2  # they were not there all the time
    demands.review(NOW + 2 * REVIEW_SECONDS, {KEY: 2})
    assert demands[KEY].wanted == 1
    demands.review(NOW + FORGOTTEN_SECONDS, {KEY: 1})
    assert len(demands) == 0


def test_only_the_newest_shapes_are_remembered(demands: Demands) -> None:
    shapes = [a_shape(f"account-{number}") for number in range(MOST_CONTAINERS + 2)]
    for number, shape in enumerate(shapes):
        miss(demands, shape, now=NOW + number / 1000)
    demands.review(NOW + 10, {})
    assert len(demands) == MOST_CONTAINERS
    assert shape_key(shapes[1]) not in demands
    assert shape_key(shapes[2]) in demands
