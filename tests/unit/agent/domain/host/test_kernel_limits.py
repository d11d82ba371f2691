import math

import pytest

from agent.domain.host.kernel_limits import UNLIMITED, KernelLimits, differing, wanted_limits

PAGE = 4096
WANTED = wanted_limits(memory_bytes=64 * 2**20, nano_cpus=1_500_000_000, pids=512)
MET = KernelLimits(memory=64 * 2**20, swap=0, cores=1.5, pids=512)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (MET, ()),
        (KernelLimits(), ()),
        (KernelLimits(memory=64 * 2**20 + PAGE), ("memory",)),
        (KernelLimits(memory=32 * 2**20), ("memory",)),
        (KernelLimits(memory=UNLIMITED), ("memory",)),
        (KernelLimits(swap=UNLIMITED), ("swap",)),
        (KernelLimits(swap=PAGE), ("swap",)),
        (KernelLimits(cores=UNLIMITED), ("cores",)),
        (KernelLimits(cores=1.6), ("cores",)),
        (KernelLimits(cores=1.4), ("cores",)),
        (KernelLimits(cores=1.51), ()),
        (KernelLimits(pids=UNLIMITED), ("pids",)),
        (KernelLimits(pids=511), ("pids",)),
        (KernelLimits(UNLIMITED, UNLIMITED, UNLIMITED, 0), ("memory", "swap", "cores", "pids")),
    ],
)
def test_names_what_differs(found: KernelLimits, names: tuple[str, ...]) -> None:
    assert differing(WANTED, found, page_bytes=PAGE) == names


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        16 * PAGE,
    ],
)
def test_kernel_rounds_memory_down_to_whole_pages(page: int) -> None:
    wanted = wanted_limits(memory_bytes=10 * page + 1, nano_cpus=0, pids=0)
    assert differing(wanted, KernelLimits(memory=10 * page), page_bytes=page) == ()
    assert differing(wanted, KernelLimits(memory=11 * page), page_bytes=page) == ("memory",)


def test_no_limit_is_infinite() -> None:
    wanted = wanted_limits(memory_bytes=0, nano_cpus=0, pids=0)
    assert wanted == KernelLimits(math.inf, None, math.inf, math.inf)
    assert differing(wanted, wanted, page_bytes=PAGE) == ()
    assert differing(wanted, MET, page_bytes=PAGE) == ("memory", "cores", "pids")


@pytest.mark.parametrize(
    ("nano_cpus", "quota_us"),
    [
        (333_333_333, 33_333),
        (666_666_667, 66_666),
        (15_625_000, 1_562),
        (1_000_009_999, 100_000),
    ],
)
def test_engine_rounds_cores_down_to_microseconds_of_its_period(
    nano_cpus: int, quota_us: int
) -> None:
    wanted = wanted_limits(memory_bytes=0, nano_cpus=nano_cpus, pids=0)
    found = KernelLimits(cores=quota_us / 100_000)
    assert differing(wanted, found, page_bytes=PAGE) == ()
    less = KernelLimits(cores=(quota_us - 1) / 100_000)
    assert differing(wanted, less, page_bytes=PAGE) == ("cores",)
