"""Calls that a control plane made of an agent, byte for byte."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentUnavailableError
from tests.contract.byte_proxy import ByteProxy
from tests.unit.controlplane.agent_rpc.test_wire import SPEC
from tiltyard.agent.v1 import agent_pb2 as pb

TIMEOUT = 20.0


@dataclass(slots=True)
class Exchange:
    """A call. `error` is its status, its text and its trailing metadata; None of one without."""

    method: str
    request: bytes
    responses: list[bytes] = field(default_factory=list)
    error: tuple[str, str, dict[str, str]] | None = None

    @property
    def reason(self) -> str:
        """Why it failed; nothing when it succeeded."""
        return self.error[2]["tiltyard-error-reason"] if self.error else ""


def save(path: Path, exchanges: list[Exchange]) -> None:
    """Write them, one a line."""
    lines = [json.dumps(asdict(each), default=bytes.hex, ensure_ascii=False) for each in exchanges]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


def load(path: Path) -> list[Exchange]:
    """Read what `save` wrote."""
    return [
        Exchange(
            method=each["method"],
            request=bytes.fromhex(each["request"]),
            responses=[bytes.fromhex(response) for response in each["responses"]],
            error=tuple(each["error"]) if each["error"] else None,
        )
        for each in json.loads(path.read_text("utf-8"))
    ]


class Replay(ByteProxy):
    """Answers as an agent once did: `now` is the call that is answered."""

    def __init__(self) -> None:
        super().__init__("unix:/nowhere")
        self.now: Exchange

    async def handed_on(self, method: str, request: bytes, context: Any) -> AsyncGenerator[bytes]:
        assert method == self.now.method
        for response in self.now.responses:
            yield response
        if self.now.error is not None:
            code, text, trailing = self.now.error
            await context.abort(grpc.StatusCode[code], text, tuple(trailing.items()))


async def read_by_control_plane(client: AgentClient, exchange: Exchange) -> Any:
    """What a control plane makes of an answer, of a stream a list; None for calls it never makes.

    Raises as the client does.
    """
    ask = ASKED.get(exchange.method)
    if ask is None:
        return None
    asked = ask(client, exchange.request)
    return await (_all(asked) if isinstance(asked, AsyncIterator) else asked)


async def _all(stream: AsyncIterator[Any]) -> list[Any]:
    """What came before the stream ended, which is an error of some."""
    found = []
    try:
        async for each in stream:
            found.append(each)  # noqa: PERF401  # what came before the error counts
    except AgentUnavailableError as error:
        if "ended the stream" not in str(error):
            raise
    return found


ASKED: dict[str, Callable[[AgentClient, bytes], Awaitable[Any] | AsyncIterator[Any]]] = {
    "Watch": lambda client, _: client.watch("", 0),
    "StartSession": lambda client, request: client.start_session(
        pb.StartSessionRequest.FromString(request).internal_id, SPEC, TIMEOUT
    ),
    "StopSession": lambda client, request: client.stop_session(
        pb.StopSessionRequest.FromString(request).internal_id, TIMEOUT, discard=False
    ),
    "StreamLogs": lambda client, _: client.stream_logs("any", follow=False),
    "GetReport": lambda client, _: client.get_report("any"),
    "FetchArtifact": lambda client, _: client.fetch_artifact("any", "/any"),
    "PullImage": lambda client, _: client.pull_image("any"),
    "RemoveImage": lambda client, _: client.remove_image("any"),
    "RenewCertificate": lambda client, _: client.ask_for_request(),
}
