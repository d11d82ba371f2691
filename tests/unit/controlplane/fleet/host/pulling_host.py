"""A host whose pulls of bad images hang until they fail, without a network."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from random import Random
from types import SimpleNamespace
from typing import Any

from controlplane.domain.errors import AgentUnavailableError
from controlplane.domain.hosts.contract import Drain
from controlplane.domain.hosts.desired_state import DesiredState
from controlplane.domain.hosts.host_orders import HostImages, HostOrders
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.image_room import ImageRoom
from controlplane.fleet.host.images import Images
from controlplane.fleet.host.orders import Orders
from tests.support.fake_clock import FakeClock
from tiltyard.images import PullProgress
from tiltyard.runtime.tasks import TaskOwner

SIZE = 10  # Bytes of an image
GOOD = "good.example/game@sha256:{}"
BAD = "bad.example/game@sha256:{}"


class PullingHost:
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
        self.incarnation = "life"
        self.removed = False
        self.drain = Drain()
        self.desired = DesiredState(self.drain)
        self.row = SimpleNamespace(region="r", node_pool="p")
        self.report = SimpleNamespace(
            images=frozenset(), free_image_bytes=None, platform="linux/amd64"
        )
        self.image_sizes: dict[str, int] = {}
        self.client = self
        self.clock = FakeClock()
        host: Any = self
        self.sizes: dict[str, int] = {}
        """Compressed bytes of images."""
        self.platforms: dict[str, tuple[str, ...]] = {}
        """Those that images are for; missing ones are unknown."""
        self.expected: list[int] = []
        """The bytes that each pull was expected to take."""
        self.kept = Images(
            host,
            ImageRoom(host),
            Orders(host, host, Deliveries(self.name, self.clock, Random(1)), self.clock),
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

    async def look(self, *_: object) -> HostOrders:
        self.reads += 1
        images = HostImages(
            {image: self.accounts.get(image, {"alice"}) for image in self.wanted},
            {image: self.accounts.get(image, {"alice"}) for image in self.surplus},
            self.sizes,
            self.platforms,
        )
        return HostOrders(images)

    async def set_shapes(self, _: object) -> None:
        pass

    async def remove_image(self, _: str) -> None:
        self.removals += 1
        await asyncio.Event().wait()

    async def pull_image(
        self, image: str, _: object, account: str, *, expected_bytes: int
    ) -> AsyncGenerator[PullProgress]:
        self.tried[image] += 1
        self.expected.append(expected_bytes)
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
