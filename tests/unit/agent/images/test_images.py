import asyncio
import logging

import pytest

from agent.changes.feed import Feed
from agent.domain import errors
from agent.images.images import CONCURRENT_PULLS, LONGEST_REFERENCE, Images, checked_reference
from agent.settings.policy import Policy
from controlplane.applications.applications import MAX_REPOSITORY
from tests.support.agent.hosts import Agent, pulled
from tests.support.fake_clock import until_idle
from tests.support.fakes import FakeClock, FakeEngine
from tests.support.tasks import let_go

DIGEST = "sha256:" + "a" * 64


def reference(digit: str) -> str:
    return f"127.0.0.1:5000/team/game@sha256:{digit * 64}"


SIX = [reference(digit) for digit in ("a", "b", "c", "d", "e", "f")]


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    engine = FakeEngine(clock)
    engine.registry |= set(SIX)
    return engine


@pytest.mark.parametrize("leaving", [1, 10])
async def test_callers_share_a_pull_that_outlasts_them(agent: Agent, leaving: int) -> None:
    agent.engine.hold("pull")
    callers = [asyncio.create_task(pulled(agent.images, reference("a"))) for _ in range(10)]
    await agent.engine.held("pull")
    for caller in callers[:leaving]:
        await let_go(caller)
    agent.engine.release("pull")
    await asyncio.gather(*callers[leaving:], pulled(agent.images, reference("a")))
    assert reference("a") in agent.images.here
    await pulled(agent.images, reference("a"))
    assert agent.engine.count("pull") == 1


async def test_failed_pull_is_reported_to_all_and_the_next_is_clean(agent: Agent) -> None:
    for error in (errors.RegistryTimeoutError("x"), errors.RegistryUnavailableError("x", "500")):
        agent.engine.fail_next("pull", error)
        pulls = [pulled(agent.images, reference("a")) for _ in range(3)]
        answers = await asyncio.gather(*pulls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {type(error)}
    await pulled(agent.images, reference("a"))


async def test_limits_concurrent_pulls(agent: Agent) -> None:
    agent.engine.hold("pull")
    callers = [asyncio.create_task(pulled(agent.images, image)) for image in SIX]
    for _ in range(50):
        await asyncio.sleep(0)
    assert agent.engine.count("pull") == CONCURRENT_PULLS // 2  # The share of one account
    agent.engine.release("pull")
    await asyncio.gather(*callers)
    assert set(SIX) <= agent.images.here.keys()


async def test_pulls_of_an_account_leave_slots_to_others(agent: Agent) -> None:
    agent.engine.hold("pull")
    callers = [asyncio.create_task(pulled(agent.images, image, "alice")) for image in SIX[:5]]
    await until_idle()
    steps = agent.images.pull(SIX[5], account="bob")
    assert not (await anext(steps)).waiting
    await until_idle()
    assert agent.engine.count("pull") == CONCURRENT_PULLS // 2 + 1
    agent.engine.release("pull")
    assert not any([progress.waiting async for progress in steps])
    await asyncio.gather(*callers)


async def test_queued_pull_says_it_waits(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    agent.engine.hold("pull")
    others = [asyncio.create_task(pulled(agent.images, image)) for image in SIX[:2]]
    await agent.engine.held("pull")
    with caplog.at_level(logging.INFO, "agent.images.images"):
        readers = [aiter(agent.images.pull(reference("c"))) for _ in range(2)]
        for steps in readers:
            while not (await anext(steps)).waiting:
                pass
    assert f"pull waits for others image={reference('c')} account= count=2" in caplog.messages
    agent.engine.release("pull")
    for steps in readers:
        assert not any([progress.waiting async for progress in steps])
    await asyncio.gather(*others)


async def test_a_pull_that_ends_without_its_image_is_a_failure(agent: Agent) -> None:
    caller = await agent.engine.held_in("pull", pulled(agent.images, reference("a")))
    agent.engine.hold("images")
    agent.engine.release("pull")
    await agent.engine.held("images")
    await agent.engine.remove_image(reference("a"))  # outside of the agent
    agent.engine.release("images")
    with pytest.raises(errors.EngineError, match="is missing after the pull"):
        await caller
    await pulled(agent.images, reference("a"))


async def test_image_removed_by_another_program_is_pulled_again(agent: Agent) -> None:
    await pulled(agent.images, reference("a"))
    agent.engine.lose_image(reference("a"))
    await pulled(agent.images, reference("a"))
    assert agent.engine.count("pull") == 2


async def test_timeout_of_a_pull_frees_its_slot(engine: FakeEngine) -> None:
    images = Images(engine, Feed(), pull_timeout=0.01)
    engine.hold("pull")
    for image in SIX[:3]:
        with pytest.raises(errors.RegistryTimeoutError, match=r"timed out after 0\.01 s"):
            await pulled(images, image)
    await images.close()


async def test_an_image_is_not_removed_while_it_is_pulled(agent: Agent) -> None:
    caller = await agent.engine.held_in("pull", pulled(agent.images, reference("a")))
    with pytest.raises(errors.ImageInUseError):
        await agent.images.remove(reference("a"))
    agent.engine.release("pull")
    await caller
    await agent.images.remove(reference("a"))
    assert reference("a") not in agent.images.here


async def test_pulls_only_from_registries_of_the_policy(engine: FakeEngine) -> None:
    images = Images(engine, Feed(), Policy(allowed_registries=("ghcr.io",)))
    with pytest.raises(errors.NotAllowedError):
        await pulled(images, reference("a"))
    assert engine.count("pull") == 0


@pytest.mark.parametrize(
    "image", ["127.0.0.1:5000/x", "localhost/x", "GHCR.io/studio/game-server__v2/x.y", "r:1/x"]
)
def test_references_at_a_registry_are_accepted(image: str) -> None:
    assert checked_reference(f"{image}@{DIGEST}") == f"{image}@{DIGEST}"


def test_the_longest_reference_is_what_a_control_plane_can_enable() -> None:
    longest = f"{'a.' * 125}com:65535/{'g' * MAX_REPOSITORY}@{DIGEST}"
    assert checked_reference(longest) == longest
    assert len(longest) == 587
    assert LONGEST_REFERENCE == 587
    with pytest.raises(errors.InvalidArgumentError, match="it is not host"):
        checked_reference(longest.replace("/", "/g"))


@pytest.mark.parametrize(
    ("registry", "cause"),
    [
        ("myregistry", "a user of Docker Hub: write myregistry:443"),
        ("Docker.io", "without it: write registry-1.docker.io"),
        ("127.1:5000", "a number and not an IPv4 address"),
        ("r:65536", r"not host\[:port\]"),
    ],
)
def test_rejects_ambiguous_registry(registry: str, cause: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=cause) as refused:
        checked_reference(f"{registry}/evil@{DIGEST}")
    assert f"'{registry}'" in str(refused.value)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "game:latest",
        f"r.example/game@{DIGEST[:-1]}",
        f"r.example/game@{DIGEST}\n",
        f"r.example/../game@{DIGEST}",
        f"r.example/Game@{DIGEST}",
        f"http://r.example/game@{DIGEST}",
        f"r.example/{'g' * 600}@{DIGEST}",
    ],
)
def test_only_references_by_digest_are_accepted(image: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        checked_reference(image)
