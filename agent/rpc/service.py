"""The handlers of AgentService; decorators of `statuses.py` convert errors to gRPC statuses."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from agent.artifacts.fetching import Artifacts, checked_path
from agent.changes.feed import Changes, Feed
from agent.domain.containers.engine import Credentials, Engine, name_of
from agent.domain.errors import (
    ContainerGoneError,
    ImageInUseError,
    InvalidArgumentError,
    SessionLiveError,
)
from agent.domain.sessions.session import Session
from agent.images.images import Images
from agent.logs import reading as logs
from agent.logs import report
from agent.logs.offsets import from_offset, measured
from agent.metrics.instruments import Metrics
from agent.rpc import wire
from agent.rpc.claim_stream import ClaimStream
from agent.rpc.renewal import HostIdentity
from agent.rpc.statuses import Context, answers, streams
from agent.sessions import readiness
from agent.sessions.manager import SessionManager
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.warm_pools import WarmPools
from agent.state.record import Records
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.agent.wire import portions
from tiltyard.contract import EndReason
from tiltyard.runtime.clock import Clock, rest_after
from tiltyard.runtime.tasks import contained

HEARTBEAT_SECONDS = 2.0
PAGE_DEFAULT = 100
PAGE_LARGEST = 1000


@dataclass(eq=False)
class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """AgentService of agent.proto."""

    sessions: SessionManager
    warm_pools: WarmPools
    prepared: PreparedContainers
    images: Images
    artifacts: Artifacts
    engine: Engine
    records: Records
    clock: Clock
    feed: Feed
    describe_host: Callable[[], pb.Host]
    identity: HostIdentity
    metrics: Metrics
    _log_readers: logs.LogReaders = field(init=False)

    def __post_init__(self) -> None:
        """Share the slots of readers between all calls."""
        self._log_readers = logs.LogReaders(self.clock)

    @answers
    async def GetHost(self, request: pb.GetHostRequest, context: Context) -> pb.GetHostResponse:
        """Return the state of the host."""
        feed = self.feed
        return pb.GetHostResponse(
            host=self.describe_host(),
            incarnation=feed.incarnation,
            sequence=feed.sequence,
            reconciled=self.sessions.reconciled,
        )

    @streams
    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncGenerator[pb.WatchResponse]:
        """Stream a snapshot, then changes."""
        feed = self.feed
        clock = self.clock
        acked = request.acked_sequence if request.incarnation == feed.incarnation else 0
        with feed.subscribe() as subscription:
            messages = self._snapshot(acked)
            for message in messages:
                yield message
            while not (changes := await subscription.take(HEARTBEAT_SECONDS)).end:
                reached = messages[-1].sequence
                began = clock.monotonic()
                messages = self._updates(changes)
                # Computing free resources is costly; a late heartbeat stops new sessions.
                rest = rest_after(clock.monotonic() - began, HEARTBEAT_SECONDS / 2)
                for message in messages[:-1]:
                    # If disconnected in between, the client must not skip the rest.
                    message.sequence = message.sequence if changes.snapshot else reached
                for message in messages:
                    yield message
                await clock.sleep(rest)

    @answers
    async def StartSession(
        self, request: pb.StartSessionRequest, context: Context
    ) -> pb.StartSessionResponse:
        """Start a session or join its start."""
        session = await self.sessions.start(
            request.internal_id, wire.spec_from_proto(request.spec)
        )
        return pb.StartSessionResponse(
            session=wire.session_to_proto(session), incarnation=self.feed.incarnation
        )

    @answers
    async def StopSession(
        self, request: pb.StopSessionRequest, context: Context
    ) -> pb.StopSessionResponse:
        """Stop a session and wait for its end."""
        session = await self.sessions.stop(
            request.internal_id, _requested_reason(request.reason), discard=request.discard
        )
        return pb.StopSessionResponse(
            session=wire.session_to_proto(session), incarnation=self.feed.incarnation
        )

    @answers
    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        """Read a page of sessions."""
        if request.page_size < 0:
            raise InvalidArgumentError("page_size", "it is negative")
        size = min(request.page_size or PAGE_DEFAULT, PAGE_LARGEST)
        after = wire.page_from_token(request.page_token)
        found = [
            session
            for session in self.sessions.all()
            if (session.create_time, session.internal_id) > after
            and not (request.live_only and session.state.ended)
        ]
        page = next(portions(map(wire.session_to_proto, found[:size])), [])
        return pb.ListSessionsResponse(
            sessions=page,
            next_page_token=wire.page_to_token(found[len(page) - 1])
            if len(page) < len(found)
            else "",
            incarnation=self.feed.incarnation,
        )

    @streams
    async def StreamLogs(
        self, request: pb.StreamLogsRequest, context: Context
    ) -> AsyncGenerator[pb.StreamLogsResponse]:
        """Stream a session's output."""
        life = self.sessions.life(request.internal_id)
        follow = request.follow
        with self._log_readers.taken(life.session, follow=follow) as rest:
            output = logs.read(
                self.engine, self.records, self.clock, life, follow=follow, rest=rest
            )
            if request.HasField("offset"):
                extent = await measured(self.engine, self.records, life)
                begin = extent.begin(request.offset)
                yield pb.StreamLogsResponse(offset=begin)
                if begin is not None and begin < request.offset:
                    return
                if begin is not None:
                    output = from_offset(output, begin)
            async with aclosing(output) as chunks:
                async for chunk in chunks:
                    self.metrics.log_bytes.inc(len(chunk))
                    yield pb.StreamLogsResponse(data=chunk)

    @answers
    async def GetReport(
        self, request: pb.GetReportRequest, context: Context
    ) -> pb.GetReportResponse:
        """Read how a session ended."""
        life = self.sessions.life(request.internal_id)
        found = await report.read(self.records, self.clock, life)
        return wire.report_to_proto(*found)

    @answers
    async def GetBindings(
        self, request: pb.GetBindingsRequest, context: Context
    ) -> pb.GetBindingsResponse:
        """Compare the ports of a session with those that its processes have bound."""
        session = self.sessions.life(request.internal_id).session
        return wire.bindings_to_proto(await readiness.bindings(self.engine, session))

    @answers
    async def FetchArtifact(  # type: ignore[override]  # gRPC takes a coroutine that writes, too
        self, request: pb.FetchArtifactRequest, context: Context
    ) -> None:
        """Stream a file or folder of an ended session, with a timeout per chunk."""
        path = checked_path(request.path)
        session = self.sessions.life(request.internal_id).session
        if not session.state.ended:
            raise SessionLiveError(session.internal_id)
        container = name_of(session)
        if session.container_removed:
            raise ContainerGoneError(container)

        async def send(chunk: bytes) -> None:
            await context.write(pb.FetchArtifactResponse(data=chunk))
            self.metrics.artifact_bytes.inc(len(chunk))

        account = session.spec.identity.account
        await self.artifacts.fetch(container, path, send, account=account)

    @streams
    async def PullImage(
        self, request: pb.PullImageRequest, context: Context
    ) -> AsyncGenerator[pb.PullImageResponse]:
        """Pull an image and stream the progress."""
        credentials = None
        if request.HasField("credentials"):
            credentials = Credentials(request.credentials.username, request.credentials.password)
        pull = self.images.pull(
            request.image,
            credentials,
            request.account,
            expected_bytes=request.expected_bytes,
        )
        async with aclosing(pull) as steps:
            async for progress in steps:
                yield wire.progress_to_proto(progress)
        yield pb.PullImageResponse(done=True)

    @streams
    async def ClaimSessions(
        self, requests: AsyncIterator[pb.ClaimSessionsRequest], context: Context
    ) -> AsyncGenerator[pb.ClaimSessionsResponse]:
        """Claim standbys, each in a task of its own."""
        stream = ClaimStream(self.warm_pools, self.feed, self.metrics, self.clock)
        with self.feed.ended_by(stream.end):
            async with aclosing(stream.results(requests)) as found:
                async for results in found:
                    yield pb.ClaimSessionsResponse(
                        results=results, incarnation=self.feed.incarnation
                    )

    @streams
    async def ListImages(
        self, request: pb.ListImagesRequest, context: Context
    ) -> AsyncGenerator[pb.ListImagesResponse]:
        """Stream the images on the host and the pulls in progress."""
        images = self.images
        for part in wire.images_to_proto(images.here, images.pulls):
            yield part

    @answers
    async def RemoveImage(
        self, request: pb.RemoveImageRequest, context: Context
    ) -> pb.RemoveImageResponse:
        """Remove an image that nothing uses."""
        if self.sessions.uses_image(request.image):
            raise ImageInUseError(request.image, "a session uses it, or its container is kept")
        if self.warm_pools.uses_image(request.image):
            raise ImageInUseError(request.image, "the standbys of a warm pool start from it")
        await self.prepared.discard_image(request.image)
        await self.images.remove(request.image)
        return pb.RemoveImageResponse()

    @answers
    async def SetWarmPool(
        self, request: pb.SetWarmPoolRequest, context: Context
    ) -> pb.SetWarmPoolResponse:
        """Set a warm pool's spec and size."""
        await self.warm_pools.set(wire.pool_from_proto(request))
        return pb.SetWarmPoolResponse()

    @answers
    async def SetShapes(
        self, request: pb.SetShapesRequest, context: Context
    ) -> pb.SetShapesResponse:
        """Set for which shapes to keep a prepared container."""
        self.prepared.set_shapes(wire.shapes_from_proto(request))
        return pb.SetShapesResponse()

    @answers
    async def SetDrain(self, request: pb.SetDrainRequest, context: Context) -> pb.SetDrainResponse:
        """Start or cancel a drain."""
        order = wire.drain_order_from_proto(request)
        empty_time, sessions = await self.sessions.drains.order(order)
        empty = wire.timestamp_to_proto(empty_time)
        return pb.SetDrainResponse(sessions=sessions, empty_time=empty)

    @answers
    async def RenewCertificate(
        self, request: pb.RenewCertificateRequest, context: Context
    ) -> pb.RenewCertificateResponse:
        """Create a key and return its signing request, or install certificate and authorities."""
        identity = self.identity
        asked = b""
        if request.certificate or request.authorities:
            await identity.install(request.certificate, request.authorities)
        else:
            asked = await identity.request()
        return pb.RenewCertificateResponse(signing_request=asked, takes_authorities=True)

    def _snapshot(self, acked: int) -> list[pb.WatchResponse]:
        sessions = [
            session
            for session in self.sessions.started()
            if not (session.state.ended and session.sequence <= acked)
        ]
        reconciled = self.sessions.reconciled
        return [
            self._message(snapshot_begin=pb.SnapshotBegin()),
            *self._image_messages(),
            self._host_message(),
            *self._batches(sessions),
            self._message(snapshot_end=pb.SnapshotEnd(reconciled=reconciled)),
        ]

    def _updates(self, changes: Changes) -> list[pb.WatchResponse]:
        """Return the changes for a watcher; a heartbeat if there are none."""
        if changes.snapshot:
            return self._snapshot(acked=0)
        # The host is first: a sequence includes the host's resources at that time.
        updates = self._image_messages() if changes.images else []
        updates += [self._host_message(changes.sessions)] if changes.host else []
        updates += self._batches(changes.sessions)
        return updates or [self._message(heartbeat=pb.Heartbeat())]

    def _image_messages(self) -> list[pb.WatchResponse]:
        if not self.images.is_known:  # no list: watchers keep the one of the agent's last run
            return []
        batches = wire.image_batches(self.images.here)
        return [self._message(images=batch) for batch in batches]

    def _host_message(self, coming: tuple[Session, ...] = ()) -> pb.WatchResponse:
        """Return the host's message; its resources include the sessions that follow."""
        host = self.describe_host()
        host.starting.extend(session.internal_id for session in coming)
        return self._message(host=host)

    def _batches(self, sessions: list[Session] | tuple[Session, ...]) -> list[pb.WatchResponse]:
        return [
            self._message(sessions=pb.SessionBatch(sessions=portion))
            for portion in portions(_encoded(sessions))
        ]

    def _message(self, **event: Any) -> pb.WatchResponse:
        feed = self.feed
        return pb.WatchResponse(incarnation=feed.incarnation, sequence=feed.sequence, **event)


def _encoded(sessions: Iterable[Session]) -> Iterator[pb.Session]:
    """Encode sessions; one with an unexpected error must not keep the others from watchers."""
    for session in sessions:
        with contained("cannot report a session: internal error", session=session.internal_id):
            yield wire.session_to_proto(session)


def _requested_reason(reason: pb.EndReason.ValueType) -> EndReason:
    allowed = {
        pb.END_REASON_UNSPECIFIED: EndReason.STOPPED,
        pb.END_REASON_STOPPED: EndReason.STOPPED,
        pb.END_REASON_DRAIN: EndReason.DRAIN,
        pb.END_REASON_HOST_LOST: EndReason.HOST_LOST,
    }
    if reason not in allowed:
        raise InvalidArgumentError("reason", "a caller cannot give this reason")
    return allowed[reason]
