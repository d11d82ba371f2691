import asyncio
import logging

import pytest

from agent.changes.feed import Feed
from agent.domain import errors
from agent.images.images import CONCURRENT_PULLS, Images
from agent.settings.policy import Policy
from tests.support.agent.hosts import Agent, pulled
from tests.support.fake_clock import FakeClock, until_idle
from tests.support.fake_engine import FakeEngine
from tests.support.tasks import let_go


def reference(digit: str) -> str:
    return f"127.0.0.1:5000/team/game@sha256:{digit * 64}"


SIX = [reference(digit) for digit in ("a", "b", "c", "d", "e", "f")]


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    engine = FakeEngine(clock)
    engine.image_store.registry |= set(SIX)
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
    await until_idle()
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
    agent.engine.image_store.lose(reference("a"))
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
