"""The pulls of one host: failing ones do not delay others (F43)."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.domain.errors import AgentUnavailableError
from controlplane.fleet.host.images import (
    LONGEST_WAIT,
    MAX_PULLS,
    MAX_REMOVALS,
    Images,
    PullState,
)
from controlplane.storage.tables.tags import HostImages
from tests.support.fake_clock import FakeClock, until_idle
from tiltyard.contract import PullProgress
from tiltyard.runtime.tasks import TaskOwner

SHARE = MAX_PULLS // 2  # Of one account
SIZE = 10  # Bytes of an image
GOOD = "good.example/game@sha256:{}"
BAD = "bad.example/game@sha256:{}"


class _Host:
    """A host whose pulls of bad images hang until they fail, and its desired images."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.accounts: dict[str, set[str]] = {}
        """Accounts with a tag by image; alice has one of the others."""
        self.asked: list[tuple[str, str]] = []
        """Each pull's image and account."""
        self.surplus: set[str] = set()
        self.removals = 0
        self.reads = 0
        self.responsive = True
        self.tried: Counter[str] = Counter()
        self.fail = asyncio.Event()
        self.name = "a0"
        self.row = SimpleNamespace(region="r", node_pool="p")
        self.report = SimpleNamespace(images=frozenset(), free_image_bytes=None)
        self.image_sizes: dict[str, int] = {}
        self.client = self
        self.clock = FakeClock()
        host: Any = self
        self.kept = Images(
            host,
            host,
            login_for=self.login_for,
            is_responsive=lambda: self.responsive,
            clock=self.clock,
            random=Random(1),
        )
        self.tasks = TaskOwner[None]()

    def begin(self, *wanted: str) -> None:
        """Start to pull these images."""
        self.wanted.update(wanted)
        self.tasks.start(self.kept.run(), "images")

    async def look(self, *_: object) -> HostImages:
        self.reads += 1
        return HostImages(
            {image: self.accounts.get(image, {"alice"}) for image in self.wanted},
            frozenset(self.surplus),
        )

    async def remove_image(self, _: str) -> None:
        self.removals += 1
        await asyncio.Event().wait()

    async def pull_image(
        self, image: str, _: object, account: str
    ) -> AsyncGenerator[PullProgress]:
        self.tried[image] += 1
        self.asked.append((image, account))
        yield PullProgress()
        if image.startswith("bad"):
            await self.fail.wait()
            raise AgentUnavailableError("it hangs")
        self.report.images |= {image}
        self.image_sizes[image] = SIZE
        if self.report.free_image_bytes is not None:
            self.report.free_image_bytes -= SIZE
        self.kept.on_change()

    async def login_for(self, _: str) -> None:
        return None


@pytest.fixture
async def host() -> AsyncIterator[_Host]:
    host = _Host()
    yield host
    await host.tasks.close()
    await host.kept.close()


@pytest.mark.part_alone
async def test_f43_many_images_that_hang_do_not_hold_up_one_that_does_not(host: _Host) -> None:
    host.begin(*(BAD.format(number) for number in range(40)))
    await until_idle()
    assert len(host.tried) == SHARE
    host.fail.set()
    host.fail.clear()  # the first two fail, so their registry is suspect
    await until_idle()
    assert sum(pull.failures for pull in host.kept.pulls) == SHARE
    await host.clock.advance(3 * LONGEST_WAIT)  # due pulls have begun
    assert [pull.state for pull in host.kept.pulls].count(PullState.PULLING) == 1
    tried = host.tried.total()
    host.wanted.add(GOOD.format(0))
    host.kept.look()
    await until_idle()
    assert GOOD.format(0) in host.report.images
    assert host.tried.total() == tried + 1  # at once, despite one that hangs


async def test_pulls_of_an_account_that_hang_delay_no_other_account(host: _Host) -> None:
    host.begin(*(BAD.format(number) for number in range(40)))
    await until_idle()
    host.wanted.add(GOOD.format(0))
    host.accounts[GOOD.format(0)] = {"bob"}
    host.kept.look()
    await until_idle()
    assert GOOD.format(0) in host.report.images
    assert len(host.tried) == SHARE + 1


async def test_retries_of_an_account_that_hang_delay_no_retry_of_another(host: _Host) -> None:
    other = "bad.example/other@sha256:0"
    host.accounts[other] = {"bob"}
    host.begin(*(BAD.format(number) for number in range(40)), other)
    await until_idle()
    host.fail.set()
    await until_idle()
    host.fail.clear()
    host.asked.clear()
    await host.clock.advance(3 * LONGEST_WAIT)  # due pulls have begun, and hang again
    assert sorted(account for _, account in host.asked) == ["alice", "bob"]


async def test_pull_of_a_shared_image_takes_the_slot_of_its_least_busy_account(
    host: _Host,
) -> None:
    shared = "bad.example/shared@sha256:0"
    host.accounts[shared] = {"alice", "bob"}
    host.begin(*(BAD.format(number) for number in range(40)))
    await until_idle()
    host.wanted.add(shared)
    host.kept.look()
    await until_idle()
    assert host.asked[-1] == (shared, "bob")


async def test_images_of_an_account_take_at_most_half_of_what_others_leave_free(
    host: _Host,
) -> None:
    host.report.free_image_bytes = 20 * SIZE
    images = [GOOD.format(number) for number in range(40)]
    host.begin(*images)
    await host.clock.advance(3 * LONGEST_WAIT)
    assert len(host.report.images) == 10
    of_bob = "good.example/other@sha256:0"
    host.accounts[of_bob] = {"bob"}
    host.wanted.add(of_bob)
    host.kept.look()
    await host.clock.advance(LONGEST_WAIT)
    assert of_bob in host.report.images
    [*left] = host.kept.pulls
    assert {pull.state for pull in left} == {PullState.FAILED}
    assert left[0].cause == (
        f"cannot pull {left[0].image}: the images of the account fill its share of the host's disk"
    )
    assert sum(pull.failures for pull in left) == 0  # of no registry


async def test_image_beyond_a_share_is_pulled_once_there_is_room(host: _Host) -> None:
    host.report.free_image_bytes = 0
    host.begin(GOOD.format(0))
    await host.clock.advance(LONGEST_WAIT)
    assert not host.tried
    host.report.free_image_bytes = 20 * SIZE
    await host.clock.advance(2 * LONGEST_WAIT)
    assert GOOD.format(0) in host.report.images


async def test_desired_images_are_read_once_for_all_images(host: _Host) -> None:
    images = [GOOD.format(number) for number in range(200)]
    host.begin(*images)
    await until_idle()
    while not host.kept.idle:
        await until_idle()
    assert host.report.images == frozenset(images)
    assert host.reads == 1


async def test_few_images_are_removed_at_a_time_however_many_a_host_reports(host: _Host) -> None:
    host.surplus = {GOOD.format(number) for number in range(40)}
    host.report.images = frozenset(host.surplus)
    host.begin()
    await until_idle()
    assert host.removals == MAX_REMOVALS


async def test_queued_pull_of_an_unwanted_image_is_cancelled(host: _Host) -> None:
    host.begin(BAD.format(0), BAD.format(1), GOOD.format(0))
    await until_idle()
    assert len(host.tried) == SHARE
    host.wanted.remove(GOOD.format(0))
    host.kept.look()
    await until_idle()
    host.fail.set()
    await host.clock.advance(LONGEST_WAIT)
    assert host.tried.total() >= 4
    assert GOOD.format(0) not in host.tried


async def test_unresponsive_host_gets_pulls_on_its_return(host: _Host) -> None:
    host.begin()
    host.responsive = False
    host.wanted.add(GOOD.format(0))
    host.kept.look()
    await until_idle()
    assert not host.tried
    host.responsive = True
    host.kept.on_change()
    await until_idle()
    assert GOOD.format(0) in host.report.images


async def test_repeated_cause_warns_once(host: _Host, caplog: pytest.LogCaptureFixture) -> None:
    host.begin(BAD.format(0))
    host.fail.set()
    with caplog.at_level(logging.INFO):
        await host.clock.advance(5 * LONGEST_WAIT)
    assert host.tried[BAD.format(0)] >= 5
    [level] = [record.levelname for record in caplog.records if "hangs" in record.message]
    assert level == "WARNING"
