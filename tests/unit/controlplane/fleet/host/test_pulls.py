"""Which pulls are made next, so that what fails holds up nobody (F43); and how much that asks."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import AgentSilentError
from controlplane.fleet.host.images import LONGEST_WAIT, Images
from controlplane.fleet.host.pulls import MAX_PULLS, MAX_SUSPECTS, Pull, next_pulls, suspects
from controlplane.storage.tables.tags import HostImages
from tests.support.fake_clock import FakeClock, settle
from tiltyard.contract import PullProgress
from tiltyard.runtime.tasks import TaskOwner

GOOD, BAD = "good.example/game@sha256:{}", "bad.example/game@sha256:{}"


def test_two_at_a_time_in_the_order_in_which_they_came() -> None:
    pulls = [Pull(GOOD.format(number)) for number in range(4)]
    assert next_pulls(pulls, [], 0) == [GOOD.format(0), GOOD.format(1)]
    assert next_pulls(pulls, [GOOD.format(0)], 0) == [GOOD.format(1)]
    assert next_pulls(pulls, [GOOD.format(0), GOOD.format(1)], 0) == []


def test_what_never_failed_goes_first_and_what_failed_least_next() -> None:
    pulls = [
        Pull(BAD.format(0), failures=3),
        Pull(BAD.format(1), failures=1),
        Pull(GOOD.format(0)),
    ]
    assert next_pulls(pulls, [], 0) == [GOOD.format(0), BAD.format(1)]


def test_a_registry_that_fails_gets_one_of_two_places() -> None:
    pulls = [Pull(BAD.format(0), failures=1), *(Pull(BAD.format(n)) for n in (1, 2))]
    assert suspects(pulls) == {BAD.format(n) for n in range(3)}
    assert next_pulls(pulls, [], 0) == [BAD.format(1)]
    assert next_pulls(pulls, [BAD.format(1)], 0) == []
    assert next_pulls([*pulls, Pull(GOOD.format(0))], [BAD.format(1)], 0) == [GOOD.format(0)]


def test_a_pull_that_failed_waits_until_it_is_due() -> None:
    pulls = [Pull(BAD.format(0), failures=1, due=10.0)]
    assert next_pulls(pulls, [], 9.9) == []
    assert next_pulls(pulls, [], 10.0) == [BAD.format(0)]


_PULLS = st.lists(
    st.builds(
        Pull,
        st.builds(
            "{}/g@{}".format, st.sampled_from(["a.example", "b.example"]), st.integers(0, 9)
        ),
        failures=st.integers(0, 3),
        due=st.sampled_from([0.0, 5.0]),
    ),
    max_size=8,
    unique_by=lambda pull: pull.image,
)


@given(_PULLS, st.data())
def test_places_are_never_exceeded_and_never_left_free_for_no_reason(
    pulls: list[Pull], data: Any
) -> None:
    images = [pull.image for pull in pulls]
    running = (
        data.draw(st.lists(st.sampled_from(images), unique=True, max_size=2)) if pulls else []
    )
    chosen = next_pulls(pulls, running, 1.0)
    suspected = suspects(pulls)
    assert len(set(chosen)) == len(chosen)
    assert not set(chosen) & set(running)
    assert len(running) + len(chosen) <= max(MAX_PULLS, len(running))
    if sum(image in suspected for image in running) <= MAX_SUSPECTS:
        assert sum(image in suspected for image in (*running, *chosen)) <= MAX_SUSPECTS
    waiting = {pull.image: pull for pull in pulls if pull.due <= 1.0 and pull.image not in running}
    if len(running) + len(chosen) < MAX_PULLS:
        left = set(waiting) - set(chosen)
        busy = sum(image in suspected for image in (*running, *chosen)) >= MAX_SUSPECTS
        assert not left or (busy and left <= suspected)


class _Host:
    """A host whose pulls of bad images hang until they fail, and its desired images."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = set(wanted)
        self.reads = 0
        self.responsive = True
        self.tried: Counter[str] = Counter()
        self.fail = asyncio.Event()
        self.name = "a0"
        self.row = SimpleNamespace(region="r", node_pool="p")
        self.report = SimpleNamespace(images=frozenset())
        self.client = self
        self.kept: Images | None = None
        self.clock = FakeClock()

    async def images_of(self, *_: object) -> HostImages:
        self.reads += 1
        return HostImages(frozenset(self.wanted), frozenset())

    async def pull_image(self, image: str, _: object) -> AsyncGenerator[PullProgress]:
        self.tried[image] += 1
        yield PullProgress()
        if image.startswith("bad"):
            await self.fail.wait()
            raise AgentSilentError("it hangs")
        self.report.images |= {image}
        assert self.kept is not None
        self.kept.on_change()

    async def login_for(self, _: str) -> None:
        return None


@pytest.fixture
async def make() -> AsyncIterator[Any]:
    made: list[Images] = []
    tasks = TaskOwner[None]()

    def start(wanted: Collection[str]) -> _Host:
        host: Any = _Host(wanted)
        host.kept = Images(
            host,
            host,
            login_for=host.login_for,
            is_responsive=lambda: host.responsive,
            clock=host.clock,
            random=Random(1),
        )
        made.append(host.kept)
        tasks.start(host.kept.run(), "images")
        return host  # type: ignore[no-any-return]

    yield start
    await tasks.close()
    for images in made:
        await images.close()


@pytest.mark.part_alone
async def test_f43_many_images_that_hang_do_not_hold_up_one_that_does_not(make: Any) -> None:
    host = make([BAD.format(number) for number in range(40)])
    await settle()
    assert len(host.tried) == MAX_PULLS
    host.fail.set()
    host.fail.clear()  # the first two fail; from now on they are known
    await settle()
    assert sum(pull.failures for pull in host.kept.pulls) == MAX_PULLS
    await host.clock.advance(3 * LONGEST_WAIT)  # what is due has begun
    assert len(host.kept._running) == MAX_SUSPECTS
    tried = host.tried.total()
    host.wanted.add(GOOD.format(0))
    host.kept.look()
    await settle()
    assert GOOD.format(0) in host.report.images
    assert host.tried.total() == tried + 1  # at once, beside one that hangs


async def test_what_is_wanted_is_read_once_for_all_images(make: Any) -> None:
    images = [GOOD.format(number) for number in range(200)]
    host = make(images)
    await settle()
    while not host.kept.idle:
        await settle()
    assert host.report.images == frozenset(images)
    assert host.reads == 1


async def test_a_pull_that_nobody_wants_any_more_is_not_begun(make: Any) -> None:
    images = [BAD.format(0), BAD.format(1), GOOD.format(0)]
    host = make(images)
    await settle()
    assert len(host.tried) == MAX_PULLS
    host.wanted.remove(GOOD.format(0))
    host.kept.look()
    host.fail.set()
    await host.clock.advance(LONGEST_WAIT)
    assert host.tried.total() >= 4
    assert GOOD.format(0) not in host.tried


async def test_a_host_that_is_not_heard_is_not_asked_and_caught_up_with_on_its_return(
    make: Any,
) -> None:
    host = make([])
    host.responsive = False
    host.wanted.add(GOOD.format(0))
    host.kept.look()
    await settle()
    assert not host.tried
    host.responsive = True
    host.kept.on_change()
    await settle()
    assert GOOD.format(0) in host.report.images


async def test_a_cause_is_a_warning_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    host = make([BAD.format(0)])
    host.fail.set()
    with caplog.at_level(logging.INFO):
        await host.clock.advance(5 * LONGEST_WAIT)
    assert host.tried[BAD.format(0)] >= 5
    assert [record.levelname for record in caplog.records if "hangs" in record.message] == [
        "WARNING"
    ]
