"""Records the calls of a format: `python -m tests.contract.recording formats/<n>`.

A control plane and an agent of today play a story over a proxy. The descriptors that the folder
has are those of the format; where it has none they are today's. A released format is never
recorded again.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from agent.rpc.identity import FILE
from tests.agent.writing import identify
from tests.contract.exchanges import Exchange, save
from tests.contract.formats import DESCRIPTORS, EXCHANGES, today
from tests.contract.previous import Previous, WholeBehind
from tests.contract.test_agent_service import start_request
from tests.support.agent.served import CLOCK
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

PIN = 20_777
STOPPED = "eeeeeeee-0000-4000-8000-000000000000"
LATE = "ffffffff-0000-4000-8000-000000000000"


class Recorder(Previous):
    """Keeps what goes through it."""

    def __init__(self, target: str, files: FileDescriptorSet) -> None:
        super().__init__(target, files)
        self.exchanges: list[Exchange] = []

    async def handed_on(self, method: str, request: bytes, context: Any) -> AsyncGenerator[bytes]:
        exchange = Exchange(method, self.asked(method, request))
        self.exchanges.append(exchange)
        answers = super().handed_on(method, exchange.request, context)
        async with contextlib.aclosing(answers):
            async for answer in answers:
                exchange.responses.append(answer)
                yield answer

    def failed(self, method: str, request: bytes, error: grpc.aio.AioRpcError) -> None:
        trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
        made = (each for each in reversed(self.exchanges) if each.method == method)
        exchange = next(each for each in made if each.request == request)
        exchange.error = (error.code().name, error.details() or "", trailing)


async def record(folder: Path) -> None:
    """Write the exchanges of a format into its folder, and its descriptors where it has none."""
    path = folder / DESCRIPTORS
    files = today()
    if path.exists():
        files = FileDescriptorSet.FromString(path.read_bytes())
    else:
        path.write_bytes(files.SerializeToString(deterministic=True))
    with tempfile.TemporaryDirectory() as scratch:
        save(folder / EXCHANGES, await _played(Path(scratch), files))


async def _played(folder: Path, files: FileDescriptorSet) -> list[Exchange]:
    async with WholeBehind(folder, lambda target: Recorder(target, files)) as whole:
        await asyncio.to_thread(identify, whole.host.config.state_dir / FILE, CLOCK.time())
        await _play(whole)
        recorder = whole.behind.proxy
        assert isinstance(recorder, Recorder)
        await _play_the_rest(whole.behind.address)
    # A stream that ended with the program was no error of it.
    return [each for each in recorder.exchanges if each.error is None or each.method != "Watch"]


async def _play(whole: WholeBehind) -> None:
    """What callers bring about."""
    await whole.make_game()
    rich = await whole.start(
        id="match ü",
        args=["--map", "ü"],
        env={"MODE": "duel"},
        labels={"mode": "duel"},
        external_id="x-1",
        ttl="90m",
        restart=True,
        ports=[{"container": 7777, "type": "udp", "host": PIN}],
    )
    assert rich.status == 201, rich.text
    assert (await whole.start(id="duel-2")).status == 201
    (await whole.start(id="duel-3")).expect(201)
    containers = whole.engine.all
    for held in containers:
        whole.engine.write_log(held.name, b"one\n\xff two\n")
        whole.engine.find(held.name).put_file("/data/replay", b"replay")
    whole.engine.end(containers[2].name, 139)
    await whole.becomes("duel-3", "exited")
    assert (await whole.call("GET", "/logs?id=duel-2")).status == 200
    assert (await whole.call("DELETE", "/session/duel-2")).status == 204
    assert (await whole.call("GET", "/session/duel-3/report")).status == 200
    for path, status in (("/data", 200), ("/none", 404)):
        (await whole.call("GET", f"/artifacts?session=duel-3&path={path}")).expect(status)
    await whole.restart()
    assert await whole.status_of("match ü") == "running"


async def _play_the_rest(address: str) -> None:
    """What a control plane asks for seldom, or is refused."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        await stub.GetHost(pb.GetHostRequest())
        sessions = (await stub.ListSessions(pb.ListSessionsRequest())).sessions
        [live] = [each for each in sessions if each.state == pb.STATE_RUNNING]
        await stub.GetBindings(pb.GetBindingsRequest(internal_id=live.internal_id))
        [listed] = [part async for part in stub.ListImages(pb.ListImagesRequest())]
        image = listed.images[0].image
        drain = pb.SetDrainRequest(revision=3, draining=True)
        drain.deadline_time.FromSeconds(4_000_000_000)
        drain.remaining.FromSeconds(3600)
        await stub.SetDrain(drain)
        await stub.RenewCertificate(pb.RenewCertificateRequest())
        await stub.SetShapes(pb.SetShapesRequest())
        for ask, request in (
            (stub.SetDrain, pb.SetDrainRequest(revision=2)),
            (stub.RenewCertificate, pb.RenewCertificateRequest(certificate=b"none")),
            (stub.GetReport, pb.GetReportRequest(internal_id=live.internal_id)),
            (stub.StopSession, pb.StopSessionRequest(internal_id=STOPPED, discard=True)),
            (stub.StartSession, _another(STOPPED, image)),
            (stub.StartSession, _another(live.internal_id, image)),
            (stub.StartSession, _another(LATE, image)),
            (stub.RemoveImage, pb.RemoveImageRequest(image=image)),
        ):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await ask(request)
                raise AssertionError("it was not refused")


def _another(internal_id: str, image: str) -> pb.StartSessionRequest:
    request = start_request(image=image)
    request.internal_id = internal_id
    return request


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1])))
