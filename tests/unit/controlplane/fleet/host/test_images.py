"""The pulls of one host: failing ones do not delay others (F43)."""

import logging

import pytest

from controlplane.domain.applications.pulls import PullState
from controlplane.fleet.host.images import LONGEST_WAIT, MAX_PULLS, MAX_REMOVALS
from tests.support.fake_clock import until_idle
from tests.unit.controlplane.fleet.host.pulling_host import BAD, GOOD, PullingHost

SHARE = MAX_PULLS // 2  # Of one account


@pytest.mark.part_alone
async def test_f43_many_images_that_hang_do_not_hold_up_one_that_does_not(
    host: PullingHost,
) -> None:
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


async def test_pulls_of_an_account_that_hang_delay_no_other_account(host: PullingHost) -> None:
    host.begin(*(BAD.format(number) for number in range(40)))
    await until_idle()
    host.wanted.add(GOOD.format(0))
    host.accounts[GOOD.format(0)] = {"bob"}
    host.kept.look()
    await until_idle()
    assert GOOD.format(0) in host.report.images
    assert len(host.tried) == SHARE + 1


async def test_retries_of_an_account_that_hang_delay_no_retry_of_another(
    host: PullingHost,
) -> None:
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
    host: PullingHost,
) -> None:
    shared = "bad.example/shared@sha256:0"
    host.accounts[shared] = {"alice", "bob"}
    host.begin(*(BAD.format(number) for number in range(40)))
    await until_idle()
    host.wanted.add(shared)
    host.kept.look()
    await until_idle()
    assert host.asked[-1] == (shared, "bob")


async def test_desired_images_are_read_once_for_all_images(host: PullingHost) -> None:
    images = [GOOD.format(number) for number in range(200)]
    host.begin(*images)
    await until_idle()
    while not host.kept.idle:
        await until_idle()
    assert host.report.images == frozenset(images)
    assert host.reads == 1


async def test_few_images_are_removed_at_a_time_however_many_a_host_reports(
    host: PullingHost,
) -> None:
    host.surplus = {GOOD.format(number) for number in range(40)}
    host.report.images = frozenset(host.surplus)
    host.begin()
    await until_idle()
    assert host.removals == MAX_REMOVALS


async def test_queued_pull_of_an_unwanted_image_is_cancelled(host: PullingHost) -> None:
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


async def test_unresponsive_host_gets_pulls_on_its_return(host: PullingHost) -> None:
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


async def test_repeated_cause_warns_once(
    host: PullingHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.begin(BAD.format(0))
    host.fail.set()
    with caplog.at_level(logging.INFO):
        await host.clock.advance(5 * LONGEST_WAIT)
    assert host.tried[BAD.format(0)] >= 5
    [level] = [record.levelname for record in caplog.records if "hangs" in record.message]
    assert level == "WARNING"
