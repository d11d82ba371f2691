"""F43: pulls from failing registries, by an agent on a private engine.

test_f43_whole.py shows the view of callers and operators.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from agent.changes.feed import Feed
from agent.docker.engine import DockerEngine
from agent.domain.containers.engine import Credentials
from agent.domain.errors import (
    AgentError,
    DiskFullError,
    EngineUnavailableError,
    ImageNotFoundError,
    RegistryRefusedError,
    RegistryTimeoutError,
    RegistryUnavailableError,
)
from agent.images.images import CONCURRENT_PULLS, Images
from tests.support.chaos_registry import BLOBS, MANIFESTS, ChaosRegistry
from tests.support.controlplane.secured_registry import USER, SecuredRegistry
from tests.support.controlplane.system import eventually, eventually_equals
from tests.support.harness import Registry
from tests.support.private_engine import PrivateEngine, small_disk
from tests.support.pushed_image import PushedImage
from tests.support.registry_faults import (
    Fault,
    answers,
    breaks_off,
    corrupts,
    delays,
    errs,
    hangs,
    hangs_half_way,
    resets,
    trickles,
    waits,
)

pytestmark = pytest.mark.part_alone

SHARE = CONCURRENT_PULLS // 2  # Pulls of one account
SOON = 1.0  # Timeout in seconds of a pull that must not succeed
IN_TIME = 10.0  # Timeout in seconds of a pull that must succeed, even on a busy machine

DAEMON = {
    # dockerd retries a layer once after 5 s, by default five times in 75 s.
    "max-download-attempts": 1,
    # A hanging layer occupies one of these until the registry disconnects.
    "max-concurrent-downloads": 40,
}


PATIENCE = 30


@dataclass
class Puller:
    """Pulls images and measures the engine's disk."""

    engine: PrivateEngine
    docker: DockerEngine

    def images(self, timeout: float = PATIENCE) -> Images:
        return Images(self.docker, Feed(), pull_timeout=timeout)

    def kept(self) -> set[Path]:
        """Complete and partial layers and images."""
        places = (
            "tmp",
            "overlay2",
            "image/overlay2/layerdb/*",
            "image/overlay2/imagedb/content/*",
        )
        return {found for place in places for found in self.engine.data_root.glob(f"{place}/*")}

    async def until_kept(self, wanted: set[Path]) -> None:
        """Wait until the disk holds this: the engine cleans up after its answer."""

        async def differences() -> list[str]:
            return sorted(map(str, self.kept() ^ wanted))

        await eventually_equals(differences, [])

    def run(self, image: PushedImage) -> None:
        """Run an image, and remove the container."""
        url = f"unix://{self.engine.socket}"
        with closing(docker.DockerClient(url, timeout=PATIENCE)) as client:
            made = client.containers.create(image.reference, ["--exit-after", "0.1"])
            made.start()
            assert made.wait(timeout=PATIENCE)["StatusCode"] == 0
            made.remove()


@asynccontextmanager
async def puller(engine: PrivateEngine) -> AsyncIterator[Puller]:
    running = DockerEngine(str(engine.socket))
    try:
        yield Puller(engine, running)
    finally:
        await running.close()


async def pull(
    images: Images,
    image: PushedImage,
    credentials: Credentials | None = None,
    account: str = "",
) -> list[bool]:
    """Pull an image; return for each step whether it waited."""
    async with aclosing(images.pull(image.reference, credentials, account)) as steps:
        return [progress.waiting async for progress in steps]


async def pull_until_done(images: Images, image: PushedImage) -> None:
    """Retry a pull until it succeeds, like a control plane."""
    async with asyncio.timeout(PATIENCE):
        while image.reference not in images.here:
            with suppress(RegistryUnavailableError):
                await pull(images, image)


def pushed(
    chaos: ChaosRegistry, name: str, *, layers: int = 1, size: int = 100_000
) -> PushedImage:
    """Push an image with unique layers."""
    more = [os.urandom(size) for _ in range(layers)]
    return chaos.push(f"f43/{name}", more=more)


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with PrivateEngine(DAEMON) as engine:
        yield engine


@pytest.fixture
def chaos(registry: Registry, engine: PrivateEngine) -> Iterator[ChaosRegistry]:
    with ChaosRegistry(registry.address, engine.network.host_address) as chaos:
        yield chaos


@pytest.fixture
async def host(engine: PrivateEngine) -> AsyncIterator[Puller]:
    async with puller(engine) as host:
        yield host


@dataclass(frozen=True)
class Case:
    """A fault of an image's manifest or layer, and the resulting error."""

    part: str
    fault: Fault
    error: type[AgentError] | tuple[type[AgentError], ...]
    error_text: str = ""

    def disturb(self, chaos: ChaosRegistry, image: PushedImage) -> None:
        chaos.disturb(image.digest if self.part == "manifest" else image.layers[-1], self.fault)


LIMITED = errs(429, "TOOMANYREQUESTS", "you have reached your limit")
CASES = (
    Case("manifest", answers(500), RegistryUnavailableError, "500 Internal Server Error"),
    Case("manifest", answers(429, Retry_After="1"), RegistryUnavailableError, "429"),
    Case("manifest", LIMITED, RegistryUnavailableError, "you have reached your limit"),
    Case("manifest", errs(401, "UNAUTHORIZED", "authentication required"), RegistryRefusedError),
    Case("manifest", errs(403, "DENIED", "requested access is denied"), RegistryRefusedError),
    Case("manifest", answers(403), RegistryRefusedError, "403"),
    Case("manifest", errs(404, "MANIFEST_UNKNOWN", "manifest unknown"), ImageNotFoundError),
    # 26.1 and 28.5 hide the status of answers outside of the registry API.
    Case("manifest", answers(404), (ImageNotFoundError, RegistryUnavailableError)),
    Case("manifest", corrupts, RegistryUnavailableError, "invalid character"),
    Case("manifest", breaks_off, RegistryUnavailableError, "EOF"),
    Case("manifest", hangs, RegistryTimeoutError, "timed out after"),
    Case("manifest", trickles, RegistryTimeoutError, "timed out after"),
    Case("layer", LIMITED, RegistryUnavailableError, "you have reached your limit"),
    Case("layer", errs(404, "BLOB_UNKNOWN", "blob unknown to registry"), ImageNotFoundError),
    Case("layer", corrupts, RegistryUnavailableError, "verification failed"),
    Case("layer", hangs_half_way, RegistryTimeoutError, "timed out after"),
    Case("layer", trickles, RegistryTimeoutError, "timed out after"),
)
TRIED_AGAIN = (
    Case("layer", answers(500), RegistryUnavailableError, "500 Internal Server Error"),
    Case("layer", breaks_off, RegistryUnavailableError, "EOF"),
    Case("layer", resets, RegistryUnavailableError, "reset by peer"),
)
"""Faults that dockerd itself retries."""


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(CASES, id="at once"),
        pytest.param(TRIED_AGAIN, id="after tries of dockerd's own", marks=pytest.mark.slow),
    ],
)
async def test_f43_a_failed_pull_is_told_by_its_cause_leaves_nothing_and_the_next_is_clean(
    host: Puller, chaos: ChaosRegistry, caplog: pytest.LogCaptureFixture, cases: Sequence[Case]
) -> None:
    empty = host.kept()
    images = [pushed(chaos, f"case-{number}") for number in range(len(cases))]

    async def fails(case: Case, image: PushedImage) -> None:
        case.disturb(chaos, image)
        mine = host.images(SOON if case.error is RegistryTimeoutError else PATIENCE)
        with pytest.raises(AgentError) as raised:
            await pull(mine, image)
        assert isinstance(raised.value, case.error), case
        assert case.error_text in str(raised.value), case
        assert any(str(raised.value) in message for message in caplog.messages)

    await asyncio.gather(*map(fails, cases, images))
    await host.until_kept(empty)
    chaos.heal()
    here = host.images()
    await asyncio.gather(*(pull_until_done(here, image) for image in images))
    await asyncio.to_thread(host.run, images[0])
    for image in images:
        await here.remove(image.reference)
    await host.until_kept(empty)


@pytest.mark.slow
async def test_f43_pulls_that_hang_keep_their_slots_no_longer_than_their_deadline(
    host: Puller, chaos: ChaosRegistry
) -> None:
    empty = host.kept()
    stuck = [pushed(chaos, f"stuck-{number}") for number in range(SHARE)]
    good = pushed(chaos, "good")
    for image in stuck:
        chaos.disturb(image.layers[-1], hangs)
    images = host.images(IN_TIME)
    hung = [asyncio.create_task(pull(images, image)) for image in stuck]
    for image in stuck:
        await asyncio.to_thread(chaos.wait_until_asked, image.layers[-1])
    assert True in await pull(images, good)
    for error in await asyncio.gather(*hung, return_exceptions=True):
        assert isinstance(error, RegistryTimeoutError)
    # dockerd drops an unanswered request when the registry disconnects.
    chaos.heal()
    patient = host.images()
    for image in stuck:
        await pull_until_done(patient, image)
    for image in (*stuck, good):
        await patient.remove(image.reference)
    await host.until_kept(empty)


async def test_f43_pulls_of_an_account_that_hang_delay_no_pull_of_another(
    host: Puller, chaos: ChaosRegistry
) -> None:
    stuck = [pushed(chaos, f"stuck-{number}") for number in range(SHARE + 1)]
    good = pushed(chaos, "good")
    for image in stuck:
        chaos.disturb(image.layers[-1], hangs)
    images = host.images()
    hung = [asyncio.create_task(pull(images, image, account="alice")) for image in stuck]
    for image in stuck[:SHARE]:
        await asyncio.to_thread(chaos.wait_until_asked, image.layers[-1])
    assert True not in await pull(images, good, account="bob")
    chaos.heal()
    await asyncio.gather(*hung, return_exceptions=True)
    for image in (*stuck, good):
        await pull_until_done(images, image)
        await images.remove(image.reference)


async def test_f43_a_hundred_who_ask_for_an_image_get_one_download_of_each_blob(
    host: Puller, chaos: ChaosRegistry
) -> None:
    image = pushed(chaos, "wanted", layers=6)
    chaos.disturb(MANIFESTS, waits)
    images = host.images()
    callers = [asyncio.create_task(pull(images, image)) for _ in range(100)]
    await asyncio.to_thread(chaos.wait_until_asked, MANIFESTS)
    chaos.heal()
    await asyncio.gather(*callers)
    assert chaos.asked(image.digest) == 1
    assert [chaos.asked(layer) for layer in image.layers[1:]] == [1] * 6
    assert chaos.asked(image.layers[0]) <= 1  # the base layer may be there already
    await pull(images, image)
    assert chaos.asked(image.digest) == 1
    await images.remove(image.reference)


async def test_f43_two_pulls_at_a_time_and_the_others_say_that_they_wait(
    host: Puller, chaos: ChaosRegistry
) -> None:
    wanted = [pushed(chaos, f"queued-{number}") for number in range(5)]
    chaos.disturb(BLOBS, waits)
    images = host.images()
    callers = [asyncio.create_task(pull(images, image)) for image in wanted]
    await asyncio.to_thread(chaos.wait_until_asked, MANIFESTS, SHARE)
    begun = [image for image in wanted if chaos.asked(image.digest)]
    assert len(begun) == SHARE
    chaos.heal()
    waited = [True in steps for steps in await asyncio.gather(*callers)]
    assert waited == [image not in begun for image in wanted]
    for image in wanted:
        await images.remove(image.reference)


@pytest.mark.slow
async def test_f43_a_slow_registry_is_no_fault(host: Puller, chaos: ChaosRegistry) -> None:
    image = pushed(chaos, "slow")
    chaos.disturb(f"{MANIFESTS}|{BLOBS}", delays(0.3))
    images = host.images()
    await pull(images, image)
    await images.remove(image.reference)


async def test_f43_a_pull_ends_with_its_engine_and_the_next_is_clean(
    host: Puller, chaos: ChaosRegistry
) -> None:
    downloads = host.engine.data_root / "tmp"
    image = pushed(chaos, "orphan", size=1_000_000)
    chaos.disturb(image.layers[-1], hangs_half_way)
    images = host.images()
    caller = asyncio.create_task(pull(images, image))
    await eventually(lambda: any(downloads.iterdir()))
    await asyncio.to_thread(host.engine.kill)
    with pytest.raises(EngineUnavailableError, match="closed the connection"):
        await caller
    with pytest.raises(EngineUnavailableError):
        await pull(images, image)
    await asyncio.to_thread(host.engine.start)
    # A layer being unpacked may stay forever: dockerd forgets unfinished ones.
    assert list(downloads.iterdir()) == []
    chaos.heal()
    await pull(images, image)
    await asyncio.to_thread(host.run, image)
    await images.remove(image.reference)


@pytest.fixture
def small_engine(tmp_path: Path) -> Iterator[PrivateEngine]:
    with small_disk(tmp_path, 64) as disk, PrivateEngine(DAEMON, data_root=disk) as engine:
        yield engine


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(os.urandom(16_000_000), id="as it comes"),
        pytest.param(bytes(16_000_000), id="as it is unpacked", marks=pytest.mark.slow),
    ],
)
async def test_f43_a_disk_that_fills_up_in_mid_pull(
    small_engine: PrivateEngine, registry: Registry, content: bytes
) -> None:
    filler = small_engine.data_root / "filler"
    filler.write_bytes(bytes(46_000_000))
    with ChaosRegistry(registry.address, small_engine.network.host_address) as proxy:
        big = proxy.push("f43/big", more=[content])
        small = pushed(proxy, "small")
        async with puller(small_engine) as host:
            empty = host.kept()
            images = host.images()
            with pytest.raises(DiskFullError, match="no space left on device"):
                await pull(images, big)
            await host.until_kept(empty)
            await pull(images, small)
            await asyncio.to_thread(host.run, small)
            filler.unlink()
            await pull(images, big)
            await asyncio.to_thread(host.run, big)


async def test_f43_a_refused_log_in_is_not_a_missing_image(
    host: Puller, engine: PrivateEngine
) -> None:
    right = Credentials(USER["username"], USER["password"])
    wrong = Credentials(USER["username"], "guess")
    with (
        SecuredRegistry() as registry,
        ChaosRegistry(registry.address, engine.network.host_address) as proxy,
    ):
        log_in = (right.username, right.password)
        image = proxy.push("f43/secret", more=[os.urandom(10)], log_in=log_in)
        images = host.images()
        for credentials in (None, wrong):
            with pytest.raises(RegistryRefusedError, match="denies access"):
                await pull(images, image, credentials)
        await pull(images, image, right)
        missing = PushedImage("f43/secret", "v1", f"sha256:{'0' * 64}", proxy.address, ())
        with pytest.raises(ImageNotFoundError):
            await pull(images, missing, right)
        await images.remove(image.reference)
