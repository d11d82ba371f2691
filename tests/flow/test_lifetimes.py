"""F28: session lifetimes, from the request to the host's record."""

from tests.flow.whole import Whole
from tests.support.agent.served import CLOCK
from tests.support.controlplane.system import assert_error

YEAR = 8760 * 3600
TAKEN = {
    "0m": 60,
    "0h0m": 60,
    "000000h000000m": 60,
    "1m": 60,
    "59m": 59 * 60,
    "90m": 90 * 60,
    "1h1m": 3660,
    "8760h": YEAR,
    "525600m": YEAR,
    "8759h60m": YEAR,
}
REFUSED: tuple[object, ...] = (
    "",
    "59s",
    "1h1h",
    "1m1h",
    "-1h",
    "+1h",
    "1.5h",
    "1e3h",
    "1_0h",
    "1 h",
    " 1h",
    "1h\n",
    "1H",
    "h",
    "60",
    "\u0663h",
    "1h\u0663m",
    "\uff11h",
    "\u00b2h",
    "1\u04bb",
    "8760h1m",
    "8761h",
    "525601m",
    "9999999999h",
    "9" * 5000 + "m",
    60,
    60.0,
    True,
    ["1h"],
    {"h": 1},
)


async def test_f28_a_lifetime_is_counted_from_the_start_and_is_a_minute_at_least(
    whole: Whole,
) -> None:
    for ttl, seconds in TAKEN.items():
        answer = await whole.start(ttl=ttl)
        assert answer.status == 201, (ttl, answer.text)
        [session] = [each for each in whole.host.recorded if not each.state.ended]
        deadline = session.deadline
        now = CLOCK.boottime()
        assert deadline is not None
        assert session.start_time is not None
        assert deadline.expire_time >= session.start_time + seconds, ttl
        assert now < deadline.boottime <= now + seconds, ttl
        assert (await whole.call("DELETE", f"/session/{answer.json['id']}")).status == 204


async def test_f28_without_a_lifetime_nothing_is_due(whole: Whole) -> None:
    assert (await whole.start(ttl=None)).status == 201
    [session] = whole.host.recorded
    assert session.deadline is None


async def test_f28_what_is_no_lifetime_is_a_422_that_starts_nothing(whole: Whole) -> None:
    for ttl in REFUSED:
        assert_error(await whole.start(ttl=ttl), 422, "ttl")
    await whole.nothing_is_left_anywhere()
