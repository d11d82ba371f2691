"""The disk of a host for images, of which an account has a share."""

from controlplane.domain.applications.pulls import PullState
from controlplane.fleet.host.image_room import UNPACKED
from controlplane.fleet.host.images import LONGEST_WAIT
from tests.support.fake_clock import until_idle
from tests.unit.controlplane.fleet.host.pulling_host import BAD, GOOD, SIZE, PullingHost


async def test_images_of_an_account_take_at_most_half_of_what_others_leave_free(
    host: PullingHost,
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
    assert {pull.state for pull in left} == {PullState.NO_ROOM}
    assert left[0].cause == (
        f"cannot pull {left[0].image}: the images of the account fill its share of the host's disk"
    )
    assert sum(pull.failures for pull in left) == 0  # of no registry


async def test_pulls_under_way_reserve_what_their_images_are_expected_to_take(
    host: PullingHost,
) -> None:
    images = [BAD.format(0), BAD.format(1)]
    host.sizes = dict.fromkeys(images, 100)
    host.report.free_image_bytes = 3 * UNPACKED * 100  # 2 for both images, which leave 1
    host.begin(*images)
    await until_idle()
    assert host.asked == [(images[0], "alice")]
    assert host.expected == [UNPACKED * 100]
    assert host.kept.state_of(images[1]) is PullState.NO_ROOM
    other = "other.example/game@sha256:0"
    host.sizes[other] = 100
    host.accounts[other] = {"bob"}
    host.wanted.add(other)
    host.kept.look()
    await until_idle()
    assert host.asked[1:] == [(other, "bob")]
    host.report.free_image_bytes = 6 * UNPACKED * 100
    await host.clock.advance(LONGEST_WAIT)
    assert host.tried[images[1]] == 1


async def test_failed_pull_reserves_nothing(host: PullingHost) -> None:
    bad = BAD.format(0)
    good = GOOD.format(0)
    host.sizes = {bad: 100, good: 100}
    host.report.free_image_bytes = 3 * UNPACKED * 100
    host.begin(bad)
    await until_idle()
    host.wanted.add(good)
    host.kept.look()
    await until_idle()
    assert host.kept.state_of(good) is PullState.NO_ROOM
    host.fail.set()
    await host.clock.advance(2 * LONGEST_WAIT)
    assert good in host.report.images


async def test_image_larger_than_a_share_is_not_pulled(host: PullingHost) -> None:
    host.sizes = {GOOD.format(0): 100}
    host.report.free_image_bytes = 2 * UNPACKED * 100 - 1
    host.begin(GOOD.format(0))
    await host.clock.advance(LONGEST_WAIT)
    assert not host.tried
    host.report.free_image_bytes += 1
    await host.clock.advance(2 * LONGEST_WAIT)
    assert GOOD.format(0) in host.report.images


async def test_images_of_withdrawn_tags_count_while_they_are_on_the_host(
    host: PullingHost,
) -> None:
    withdrawn = GOOD.format(1)
    host.surplus = {withdrawn}
    host.report.images = frozenset(host.surplus)
    host.image_sizes[withdrawn] = 100
    host.report.free_image_bytes = 100
    host.begin(GOOD.format(0))
    await host.clock.advance(LONGEST_WAIT)
    assert host.kept.room.held == [("alice", 100)]
    assert not host.tried


async def test_image_beyond_a_share_is_pulled_once_there_is_room(host: PullingHost) -> None:
    host.report.free_image_bytes = 0
    host.begin(GOOD.format(0))
    await host.clock.advance(LONGEST_WAIT)
    assert not host.tried
    host.report.free_image_bytes = 20 * SIZE
    await host.clock.advance(2 * LONGEST_WAIT)
    assert GOOD.format(0) in host.report.images
