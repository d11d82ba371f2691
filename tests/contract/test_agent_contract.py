"""What a control plane relies on of an agent: the fake one and the daemon do the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from agent.domain.containers.engine import container_name
from tests.contract.test_agent_service import DEADLINE, POOL, pool_request, refused, start_request
from tests.support.agent.claiming import claimed, reason_of
from tests.support.agent.samples import IMAGE, an_id
from tests.support.agent.served import CLOCK, served
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.fake_engine import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

_ENDED = {pb.STATE_EXITED, pb.STATE_DEAD}


@dataclass
class Side:
    """One of the two agents, its client, and what a watcher knows of its sessions."""

    stub: "agent_pb2_grpc.AgentServiceAsyncStub"  # only in the stubs of types
    binds: Callable[[bool], None]
    """Have what starts from now on bind its ports at once, or not before `bind`."""
    bind: Callable[[str], None]
    known: dict[str, pb.Session] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    """The starts that the host's numbers include, by what it said before it reported them."""
    incarnation: str = ""
    watched: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def follow(self) -> None:
        async for message in self.stub.Watch(pb.WatchRequest()):
            async with self.changed:
                self.incarnation = message.incarnation
                for session in message.sessions.sessions:
                    self.known[session.internal_id] = session
                self.counted |= set(message.host.starting)
                if message.HasField("snapshot_end"):
                    self.watched.set()
                self.changed.notify_all()

    async def becomes(self, internal_id: str, holds: Callable[[pb.Session], bool]) -> pb.Session:
        """Wait until a session is reported so."""
        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(
                lambda: internal_id in self.known and holds(self.known[internal_id])
            )
        return self.known[internal_id]

    async def standbys(self, size: int, *, is_ready: bool = True) -> list[pb.Session]:
        """Wait until this number of standbys is reported, ready or not."""

        def found() -> list[pb.Session]:
            return [
                session
                for session in self.known.values()
                if session.warm_pool == POOL
                and session.state == pb.STATE_RUNNING
                and session.HasField("ready_time") == is_ready
            ]

        async with asyncio.timeout(DEADLINE), self.changed:
            await self.changed.wait_for(lambda: len(found()) == size)
        return found()

    async def start(self, request: pb.StartSessionRequest) -> pb.Session:
        return (await self.stub.StartSession(request)).session

    async def stop(self, internal_id: str, **fields: Any) -> pb.Session:
        request = pb.StopSessionRequest(internal_id=internal_id, **fields)
        return (await self.stub.StopSession(request)).session

    async def claim(self, claim: pb.Claim) -> pb.Session:
        return (await claimed(self.stub, claim)).session

    async def refuses_claim(self, claim: pb.Claim) -> str:
        """Return the reason for which a claim is refused."""
        return reason_of(await claimed(self.stub, claim))

    async def refuses(self, method: str, request: Any) -> str:
        """Return the reason for which a call is refused."""
        return await refused(getattr(self.stub, method)(request))


@pytest.fixture(params=["fake", "daemon"])
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Side]:
    async with _fake(tmp_path) if request.param == "fake" else _daemon(tmp_path) as side:
        following = asyncio.create_task(side.follow())
        yield side
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def _fake(folder: Path) -> AsyncIterator[Side]:
    fake = FakeAgent(folder)
    fake.images.append(IMAGE)
    await fake.start()
    async with grpc.aio.insecure_channel(fake.address) as channel:
        binds = partial(setattr, fake, "binds_at_once")
        yield Side(agent_pb2_grpc.AgentServiceStub(channel), binds, fake.bind)
    await fake.stop()


@asynccontextmanager
async def _daemon(folder: Path) -> AsyncIterator[Side]:
    engine = FakeEngine()
    engine.image_store.add(IMAGE)
    async with (
        served(folder, engine, CLOCK) as agent,
        grpc.aio.insecure_channel(f"unix:{agent.config.socket}") as channel,
    ):
        stub = agent_pb2_grpc.AgentServiceStub(channel)
        binds = partial(setattr, engine, "binds_at_once")

        def bind(internal_id: str) -> None:
            engine.find(container_name(internal_id)).bind()

        yield Side(stub, binds, bind)


def claim_request(standby: pb.Session, **identity: str) -> pb.Claim:
    named: dict[str, Any] = {"account": "acme", "session_id": "m1", "application": "game"}
    return pb.Claim(internal_id=standby.internal_id, identity=pb.Identity(**named | identity))


async def test_a_start_of_a_known_id_joins_it_or_conflicts(agent: Side) -> None:
    request = start_request()
    session = await agent.start(request)
    assert session.state == pb.STATE_RUNNING
    assert session.identity == request.spec.identity
    again = await agent.start(request)
    assert again.internal_id == session.internal_id
    assert again.ports == session.ports
    assert again.create_time == session.create_time
    request.spec.env["OTHER"] = "x"
    assert await agent.refuses("StartSession", request) == "SPEC_CONFLICT"


async def test_a_host_names_the_starts_that_its_numbers_include(agent: Side) -> None:
    # Without it a control plane counts them twice until it has the answer.
    await agent.watched.wait()
    request = start_request()
    await agent.start(request)
    await agent.becomes(request.internal_id, lambda session: session.state == pb.STATE_RUNNING)
    assert request.internal_id in agent.counted


async def test_a_stop_ends_a_session_and_may_be_repeated(agent: Side) -> None:
    request = start_request()
    await agent.start(request)
    for _ in range(2):
        ended = await agent.stop(request.internal_id)
        assert ended.state == pb.STATE_EXITED
        assert ended.end_reason == pb.END_REASON_STOPPED
    assert (await agent.start(request)).state == pb.STATE_EXITED
    reported = await agent.becomes(request.internal_id, lambda session: session.state in _ENDED)
    assert reported.end_reason == pb.END_REASON_STOPPED


async def test_a_stop_that_comes_first_refuses_the_start(agent: Side) -> None:
    request = start_request()
    stop = pb.StopSessionRequest(internal_id=request.internal_id)
    for _ in range(2):
        assert await agent.refuses("StopSession", stop) == "SESSION_NOT_FOUND"
    assert await agent.refuses("StartSession", request) == "SESSION_STOPPED"


async def test_a_stop_that_discards_leaves_nothing_to_start_again(agent: Side) -> None:
    request = start_request()
    await agent.start(request)
    assert (await agent.stop(request.internal_id, discard=True)).state == pb.STATE_EXITED
    stop = pb.StopSessionRequest(internal_id=request.internal_id)
    assert await agent.refuses("StopSession", stop) == "SESSION_NOT_FOUND"
    assert await agent.refuses("StartSession", request) == "SESSION_STOPPED"


async def test_an_image_that_is_not_there_is_refused(agent: Side) -> None:
    request = start_request(image="127.0.0.1:5000/other@sha256:" + "b" * 64)
    assert await agent.refuses("StartSession", request) == "IMAGE_MISSING"


async def test_a_drained_host_refuses_starts_until_that_is_called_off(agent: Side) -> None:
    kept = await agent.start(start_request())
    assert (await agent.stub.SetDrain(pb.SetDrainRequest(revision=2, draining=True))).sessions == 1
    assert await agent.refuses("StartSession", start_request()) == "DRAINING"
    assert await agent.refuses("SetDrain", pb.SetDrainRequest(revision=1)) == "STALE_REVISION"
    await agent.stub.SetDrain(pb.SetDrainRequest(revision=3))
    assert (await agent.start(start_request())).state == pb.STATE_RUNNING
    await agent.becomes(kept.internal_id, lambda session: session.state == pb.STATE_RUNNING)


async def test_a_pool_is_filled_claimed_and_filled_again(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(2))
    standby, _ = await agent.standbys(2)
    assert standby.identity.session_id == standby.internal_id
    assert standby.warm_pool_revision == 1
    claim = claim_request(standby)
    session = await agent.claim(claim)
    assert session.internal_id == standby.internal_id
    assert session.identity == claim.identity
    assert session.warm_pool == ""
    assert session.warm_pool_revision == 1
    assert session.injected_env["TILTYARD_SESSION_ID"] == "m1"
    assert (await agent.claim(claim)).identity == claim.identity
    await agent.becomes(standby.internal_id, lambda session: not session.warm_pool)
    assert standby.internal_id not in {each.internal_id for each in await agent.standbys(2)}


@pytest.mark.parametrize("other", ["account", "session_id", "application"])
async def test_a_session_is_not_claimed_by_another(agent: Side, other: str) -> None:
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1)
    await agent.claim(claim_request(standby))
    claim = claim_request(standby, **{other: "other"})
    assert await agent.refuses_claim(claim) == "STANDBY_NOT_CLAIMABLE"


async def test_a_standby_is_claimed_once_it_is_ready(agent: Side) -> None:
    agent.binds(False)
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1, is_ready=False)
    claim = claim_request(standby)
    assert await agent.refuses_claim(claim) == "STANDBY_NOT_CLAIMABLE"
    agent.bind(standby.internal_id)
    await agent.standbys(1)
    assert (await agent.claim(claim)).identity == claim.identity


async def test_what_has_ended_or_is_unknown_is_not_claimed(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1)
    await agent.stop(standby.internal_id)
    for internal_id in (standby.internal_id, an_id()):
        claim = claim_request(pb.Session(internal_id=internal_id))
        assert await agent.refuses_claim(claim) == "STANDBY_NOT_CLAIMABLE"


async def test_a_pool_takes_no_older_order_and_ends(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(2, 3))
    await agent.standbys(2)
    await agent.stub.SetWarmPool(pool_request(1, 4))
    (kept,) = await agent.standbys(1)
    assert kept.warm_pool_revision == 3  # what it runs is the same since then
    assert await agent.refuses("SetWarmPool", pool_request(5, 3)) == "STALE_REVISION"
    await agent.stub.SetWarmPool(pb.SetWarmPoolRequest(pool_id=POOL, revision=5))
    assert await agent.standbys(0) == []


async def test_an_order_of_another_spec_replaces_the_standbys(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(1))
    (older,) = await agent.standbys(1)
    await agent.stub.SetWarmPool(pool_request(1, 2, ttl=None, env={"MODE": "new"}))
    ended = await agent.becomes(older.internal_id, lambda session: session.state in _ENDED)
    assert ended.end_reason == pb.END_REASON_STOPPED
    (newer,) = await agent.standbys(1)
    assert newer.warm_pool_revision == 2


async def test_a_standby_has_no_lifetime(agent: Side) -> None:
    """Not even if the spec of its pool has one: the claim gives it."""
    await agent.stub.SetWarmPool(pool_request(1, ttl=Duration(seconds=60)))
    (standby,) = await agent.standbys(1)
    assert not standby.HasField("expire_time")


async def test_a_claim_gives_a_lifetime(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1)
    claim = claim_request(standby)
    claim.ttl.CopyFrom(Duration(seconds=600))
    assert (await agent.claim(claim)).HasField("expire_time")


async def test_a_repeated_claim_does_not_extend_the_lifetime(agent: Side) -> None:
    await agent.stub.SetWarmPool(pool_request(1))
    (standby,) = await agent.standbys(1)
    claim = claim_request(standby)
    claim.ttl.CopyFrom(Duration(seconds=600))
    session = await agent.claim(claim)
    assert (await agent.claim(claim)).expire_time == session.expire_time
