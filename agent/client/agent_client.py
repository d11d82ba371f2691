"""A client of AgentService over the agent's unix socket."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf.json_format import MessageToDict

from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.contract import ERROR_REASON_KEY

Message = Mapping[str, Any]

CALL_SECONDS = 10.0
PAGE_SIZE = 1000
STOP_SECONDS = 60.0  # Longer than any reasonable grace period; the stop continues after that
IMAGES_SECONDS = 30.0
"""The agent queries the engine, which may hang; the response then lacks its data."""
READ_SECONDS = 900.0  # For a log or an artifact, which the agent itself ends after 10 min
SHOWN = 5  # Sessions that are listed when several match
_ENDED = frozenset({"STATE_EXITED", "STATE_DEAD"})


class ClientError(Exception):
    """The agent failed or did not answer, or no session matches; the text is for the user."""


class AgentClient:
    """Blocking calls to one agent; messages are dictionaries with proto field names."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._channel.close()
        if isinstance(error, grpc.RpcError):
            raise ClientError(self._explain(error)) from error

    def host(self) -> dict[str, Any]:
        """Return the response of GetHost."""
        return _to_dict(self._stub.GetHost(pb.GetHostRequest(), timeout=CALL_SECONDS))

    def sessions(self, *, live_only: bool) -> Iterator[dict[str, Any]]:
        """Yield sessions, oldest first."""
        token = ""
        while True:
            page = self._stub.ListSessions(
                pb.ListSessionsRequest(live_only=live_only, page_token=token, page_size=PAGE_SIZE),
                timeout=CALL_SECONDS,
            )
            yield from map(_to_dict, page.sessions)
            token = page.next_page_token
            if not token:
                return

    def find(self, given: str) -> Message:
        """Find a session by internal id, a prefix of it, or the client's id."""
        return choose(self.sessions(live_only=False), given)

    def stop(self, internal_id: str) -> dict[str, Any]:
        """Stop a session and wait for its end."""
        request = pb.StopSessionRequest(internal_id=internal_id)
        return _to_dict(self._stub.StopSession(request, timeout=STOP_SECONDS).session)

    def logs(self, internal_id: str, *, follow: bool) -> Iterator[bytes]:
        """Yield a session's output."""
        request = pb.StreamLogsRequest(internal_id=internal_id, follow=follow)
        # Following has no timeout: a person is watching.
        for chunk in self._stub.StreamLogs(request, timeout=None if follow else READ_SECONDS):
            yield chunk.data

    def report(self, internal_id: str) -> dict[str, Any]:
        """Return the report of an ended session."""
        request = pb.GetReportRequest(internal_id=internal_id)
        return _to_dict(self._stub.GetReport(request, timeout=CALL_SECONDS).report)

    def artifact(self, internal_id: str, path: str) -> Iterator[bytes]:
        """Yield a file or folder of an ended session as .tar.gz."""
        request = pb.FetchArtifactRequest(internal_id=internal_id, path=path)
        for chunk in self._stub.FetchArtifact(request, timeout=READ_SECONDS):
            yield chunk.data

    def images(self) -> dict[str, Any]:
        """Return the images on the host and the pulls in progress."""
        found = pb.ListImagesResponse()
        for part in self._stub.ListImages(pb.ListImagesRequest(), timeout=IMAGES_SECONDS):
            found.MergeFrom(part)
        return _to_dict(found)

    def set_drain(self, *, draining: bool, remaining: int | None = None) -> dict[str, Any]:
        """Accept no new sessions, and stop the rest after `remaining` seconds, or accept them."""
        request = pb.SetDrainRequest(draining=draining)
        if remaining is not None:
            request.remaining.FromSeconds(remaining)
        return _to_dict(self._stub.SetDrain(request, timeout=CALL_SECONDS))

    def _explain(self, error: grpc.RpcError) -> str:
        code = error.code()
        details = error.details()
        if code is grpc.StatusCode.UNAVAILABLE and not _reason(error):
            return (
                f"cannot reach the agent at {self._socket}: does it serve (`systemctl status"
                " tiltyard-agent`), and are you root or in its group?"
            )
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return "the agent did not answer in time; the request may still be carried out"
        return f"{_reason(error) or code.name}: {details}"


def _to_dict(message: Any) -> dict[str, Any]:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _reason(error: grpc.RpcError) -> str:
    metadata: Any = error.trailing_metadata() or ()
    return next((value for key, value in metadata if key == ERROR_REASON_KEY), "")


def choose(sessions: Iterable[Message], given: str) -> Message:
    """Select a session by internal id, by a prefix of it, or by the client's id.

    A complete internal id always selects its session, even if a client uses it as an id. Among
    sessions of one account with the same id, the live one is selected, else the newest.
    `sessions` are sorted by creation.

    Raises:
        ClientError: No session matches, or more than one.
    """
    found = []
    for session in sessions:
        if session["internal_id"] == given:
            return session
        named = session["identity"]["session_id"] == given
        if named or (given and session["internal_id"].startswith(given)):
            found.append(session)
    if len({_caller(session) for session in found}) == 1:
        live = [session for session in found if is_live(session)]
        found = live or found[-1:]
    if not found:
        raise ClientError(f"there is no session {given!r} on this host")
    if len(found) > 1:
        shown = ", ".join(map(_describe, found[:SHOWN]))
        rest = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise ClientError(f"{given!r} may be any of: {shown}{rest}")
    return found[0]


def is_live(session: Message) -> bool:
    """Return whether a session has not ended."""
    return session["state"] not in _ENDED


def is_standby(session: Message) -> bool:
    """Return whether a session is an unclaimed standby; False if in doubt."""
    return bool(session["warm_pool"]) and not session["in_doubt"]


def _caller(session: Message) -> tuple[str, str]:
    return session["identity"]["account"], session["identity"]["session_id"]


def _describe(session: Message) -> str:
    account, session_id = _caller(session)
    return f"{session['internal_id']} ({account!r}, {session_id!r})"
