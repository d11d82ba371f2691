import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import NoCapacityError
from agent.domain.host.capacity import Capacity
from tiltyard.contract import Resources

TOTAL = Resources(nano_cpus=4_000, memory_bytes=1_000)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (Resources(4_001, 1), "cores"),
        (Resources(1, 1_001), "MiB"),
        (Resources(1, 1, 3), "GPUs"),
    ],
)
def test_error_names_lacking_resource_and_reserves_nothing(wanted: Resources, named: str) -> None:
    capacity = Capacity(TOTAL, max_sessions=10, gpu_ids=["g0", "g1"])
    with pytest.raises(NoCapacityError) as refused:
        capacity.reserve("a", wanted)
    assert refused.value.resource == named
    assert capacity.reserved == Resources()


def test_adopted_sessions_may_exceed_the_total() -> None:
    capacity = Capacity(TOTAL, max_sessions=10)
    capacity.adopt("a", Resources(9_000, 10), ())
    assert capacity.reserved.nano_cpus == 9_000
    with pytest.raises(NoCapacityError, match="0 free"):
        capacity.reserve("b", Resources(1, 1))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2_000), st.booleans())))
def test_reservations_never_exceed_capacity(moves: list[tuple[int, int, bool]]) -> None:
    capacity = Capacity(TOTAL, max_sessions=3)
    held: dict[str, int] = {}
    for number, amount, take in moves:
        name = str(number)
        if not take or name in held:
            capacity.release(name)
            held.pop(name, None)
            continue
        try:
            capacity.reserve(name, Resources(amount, 1))
        except NoCapacityError:
            assert sum(held.values()) + amount > TOTAL.nano_cpus or len(held) == 3
        else:
            held[name] = amount
        assert capacity.reserved.nano_cpus == sum(held.values())
        assert capacity.reserved.nano_cpus <= TOTAL.nano_cpus
        assert capacity.free_sessions == 3 - len(held)
        assert capacity.free_sessions >= 0
