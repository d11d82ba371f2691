"""An unexpected error of one call or connection ends nothing else."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.domain.sessions.session import Port
from agent.images.images import Images
from agent.network import conntrack
from agent.network.conntrack import Conntrack
from agent.network.tls_gate import Gate
from agent.rpc import wire
from agent.state import record
from tests.agent.contained import started
from tests.support.agent.hosts import Agent, host_report, pulled
from tests.support.agent.samples import IMAGE, an_id
from tests.support.agent.tls_served import echo, is_echoed, serving
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import Protocol

LOCAL: Any = SimpleNamespace(
    invocation_metadata=tuple, auth_context=dict, peer=lambda: "unix:", abort=None
)


# -- calls and connections ------------------------------------------------------------------------


async def test_error_during_a_pull(agent: Agent, fails: Any) -> None:
    odd = IMAGE.replace("a" * 64, "b" * 64)
    other = IMAGE.replace("a" * 64, "c" * 64)
    agent.engine.image_store.registry |= {odd, other}
    fails(Images, "_fetch", odd)
    with pytest.raises(RuntimeError):
        await pulled(agent.images, odd)
    await pulled(agent.images, other)
    await pulled(agent.images, odd)
    assert {odd, other} <= agent.images.here.keys()


async def test_error_about_one_session_of_a_watch_stream(agent: Agent, fails: Any) -> None:
    odd = await started(agent)
    other = await started(agent, "other")
    failed = fails(wire, "session_to_proto", odd.internal_id)
    service = agent.service(lambda: host_report(agent))
    seen: list[str] = []
    async with aclosing(service.Watch(pb.WatchRequest(), LOCAL)) as messages:
        while not (message := await anext(messages)).HasField("snapshot_end"):
            seen += [each.internal_id for each in message.sessions.sessions]
    assert failed
    assert seen == [other.internal_id]


async def test_error_of_one_claim_of_a_stream(agent: Agent, fails: Any) -> None:
    async def claims() -> Any:
        for number in (1, 2):
            identity = pb.Identity(account="acme", session_id=f"m{number}")
            claim = pb.Claim(number=number, internal_id=an_id(), identity=identity)
            yield pb.ClaimSessionsRequest(claims=[claim])

    fails(wire, "claim_from_proto", "m1")
    service = agent.service(lambda: host_report(agent))
    results: dict[int, pb.ErrorReason.ValueType] = {}
    async with aclosing(service.ClaimSessions(claims(), LOCAL)) as messages:
        async for message in messages:
            results |= {result.number: result.reason for result in message.results}
    assert results[1] == pb.ERROR_REASON_INTERNAL
    assert results[2] not in (pb.ERROR_REASON_INTERNAL, pb.ERROR_REASON_UNSPECIFIED)


async def test_error_of_one_connection_to_a_tls_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, echo) as served:
        refusal = Gate.refusal
        raised: list[str] = []

        def failing(self: Gate, port: int, address: str) -> str:
            if not raised:
                raised.append(address)
                raise RuntimeError("as scripted")
            return refusal(self, port, address)

        monkeypatch.setattr(Gate, "refusal", failing)
        with pytest.raises(OSError):  # noqa: PT011 - it is closed, in any way
            async with served.player() as player:
                await is_echoed(player)
        assert raised
        async with served.player() as player:
            await is_echoed(player)


async def test_error_about_one_session_json_of_a_batch(agent: Agent, fails: Any) -> None:
    odd = await started(agent)
    other = await started(agent, "other")
    fails(record, "public_view", odd.internal_id)
    drain = agent.reservations.drain.now
    found = await asyncio.gather(
        *(agent.records.publish(each, drain) for each in (other, odd, other)),
        return_exceptions=True,
    )
    assert [type(each) for each in found] == [type(None), RuntimeError, type(None)]


async def test_error_about_the_flows_of_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows of other starts are in the same batch."""

    def failing(*_: object) -> None:
        raise RuntimeError("as scripted")

    monkeypatch.setattr(conntrack, "forget_by", failing)
    flows = Conntrack()
    await flows.forget([Port(7777, Protocol.UDP, 20000)])
    assert flows.failures == 1
    assert "internal error" in flows.warnings[0]
    await flows.close()
