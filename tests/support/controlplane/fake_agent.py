"""A scriptable agent: a real gRPC server on a unix socket, without containers."""

import asyncio
import copy
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from tests.support.controlplane.agent_answers import (
    LIVE,
    claim_result,
    host_of,
    host_with,
    image_batches,
    is_claimable,
    is_known_standby,
    report_of,
    take_prepared,
)
from tests.support.controlplane.agent_scripts import (
    ClaimContext,
    RefusedClaimError,
    ScriptedCalls,
    known_session,
    refuse,
    run_script,
)
from tests.support.controlplane.fake_log import FakeLog
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

PINGS_OF_IDLE = ("grpc.http2.min_ping_interval_without_data_ms", 2_000)
"""Else the server would disconnect a control plane that checks an idle connection."""
MOST_SESSIONS = 200  # Maximum number of sessions with standbys, whatever the size of a pool


class FakeAgent(ScriptedCalls, agent_pb2_grpc.AgentServiceServicer):
    """Keeps sessions in memory; each call can be scripted to refuse, hang or lose its answer.

    Pools are filled at once.
    """

    def __init__(self, folder: Path, name: str = "one") -> None:
        super().__init__()
        self.name = name
        self.address = f"unix:{folder}/{name}.sock"
        self.incarnation = str(uuid.uuid4())
        self.sequence = 0
        self.reconciled = True
        self.knows_images = True  # False before the engine has listed them
        self.beat = 2.0
        self.sessions: dict[str, agent_pb2.Session] = {}
        self.tombstones: set[str] = set()
        self._specs: dict[str, agent_pb2.SessionSpec] = {}
        self.started: list[agent_pb2.StartSessionRequest] = []
        self.stopped: list[str] = []
        self.pulled: list[str] = []
        self.removal_asked: list[str] = []
        self.images: list[str] = []
        self.image_sizes: dict[str, int] = {}  # Bytes, 0 for the others
        self.images_in_use: set[str] = set()
        self.logs: list[bytes] = [b"line 1\n", b"line 2\n"]
        self.report: agent_pb2.GetReportResponse | None = None
        """The report of all ended sessions; None for individual ones."""
        self.log = FakeLog()
        self.log_cancelled = asyncio.Event()
        self.drains: list[agent_pb2.SetDrainRequest] = []
        self.claimed: list[agent_pb2.Claim] = []
        self.orders: list[agent_pb2.SetWarmPoolRequest] = []
        self.pools: dict[str, agent_pb2.SetWarmPoolRequest] = {}  # The newest order of each pool
        self.pull_waits = False
        self.logins: list[tuple[str, str] | None] = []
        self.starts_in_flight = 0
        self.most_starts_in_flight = 0
        self.start_state = agent_pb2.STATE_RUNNING
        self.binds_at_once = True
        """Started sessions have bound their ports before the answer; else after `bind`."""
        self.host = host_of(name)
        self._watchers: set[asyncio.Queue[agent_pb2.WatchResponse | None]] = set()
        self._server: grpc.aio.Server | None = None
        self._never = asyncio.Event()

    # ---- the server's life

    async def start(self) -> None:
        """Listen; earlier sessions are kept."""
        self._server = grpc.aio.server(options=[PINGS_OF_IDLE])
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening and abort every call."""
        self._never.set()
        self.drop_watch()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self) -> None:
        """Restart as a new process with the same sessions, counting changes from 0."""
        await self.stop()
        self._never = asyncio.Event()
        self.incarnation = str(uuid.uuid4())
        self.sequence = 0
        for session in self.sessions.values():
            self._stamp(session)
        await self.start()

    # ---- scripts

    async def hang(self, _: Any, __: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Never answer; a script."""
        await self._never.wait()

    def drop_watch(self) -> None:
        """Abort every Watch stream."""
        for watcher in self._watchers:
            watcher.put_nowait(None)

    @property
    def live(self) -> list[agent_pb2.Session]:
        """The live sessions without standbys."""
        return [s for s in self._all_live if not s.warm_pool]

    @property
    def standbys(self) -> list[agent_pb2.Session]:
        return [s for s in self._all_live if s.warm_pool]

    @property
    def _all_live(self) -> list[agent_pb2.Session]:
        return [s for s in self.sessions.values() if s.state in LIVE]

    def change(self, internal_id: str, **fields: Any) -> None:
        """Change a session and notify the watchers."""
        session = self.sessions[internal_id]
        for name, value in fields.items():
            setattr(session, name, value)
        self._notify(session)

    def end(self, internal_id: str, reason: int = agent_pb2.END_REASON_EXITED) -> None:
        """End a session and notify the watchers."""
        self.sessions[internal_id].end_time.GetCurrentTime()
        self.change(internal_id, state=agent_pb2.STATE_EXITED, end_reason=reason, exit_code=0)

    def bind(self, internal_id: str) -> None:
        """Mark a session's ports as bound and notify the watchers."""
        self.sessions[internal_id].ready_time.GetCurrentTime()
        self.change(internal_id)

    def lose(self, internal_id: str) -> None:
        """Forget a session silently."""
        del self.sessions[internal_id]

    def change_host(self, **fields: Any) -> None:
        """Change the host and notify the watchers."""
        for name, value in fields.items():
            setattr(self.host, name, value)
        self.sequence += 1
        self._send(agent_pb2.WatchResponse(host=self._host()))

    def add_image(self, image: str) -> None:
        """Add an image as if it had been pulled."""
        self.images.append(image)
        self.report_images()

    def report_images(self) -> None:
        """Report the images to the watchers."""
        self.sequence += 1
        for response in self._image_batches():
            self._send(response)

    def send_snapshot(self) -> None:
        """Send a snapshot within the stream, as after a late reconcile."""
        self.sequence += 1
        for response in self._snapshot():
            self._send(response)

    def send_heartbeat(self) -> None:
        """Send a message without news to the watchers."""
        self._send(agent_pb2.WatchResponse(heartbeat=agent_pb2.Heartbeat()))

    # ---- AgentService

    async def Watch(  # noqa: N802
        self, request: agent_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[agent_pb2.WatchResponse]:
        queue: asyncio.Queue[agent_pb2.WatchResponse | None] = asyncio.Queue()
        acked = request.acked_sequence if request.incarnation == self.incarnation else 0
        for response in self._snapshot(acked):
            queue.put_nowait(self._stamped(response))
        self._watchers.add(queue)
        try:
            while True:
                try:
                    response_or_none = await asyncio.wait_for(queue.get(), self.beat)
                except TimeoutError:
                    if not queue.empty():
                        continue  # a heartbeat has the sequence of all that was sent before it
                    beat = agent_pb2.WatchResponse(heartbeat=agent_pb2.Heartbeat())
                    response_or_none = self._stamped(beat)
                if response_or_none is None:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "dropped")
                else:
                    yield response_or_none
        finally:
            self._watchers.discard(queue)

    async def StartSession(  # noqa: N802
        self, request: agent_pb2.StartSessionRequest, context: Any
    ) -> agent_pb2.StartSessionResponse:
        self.starts_in_flight += 1
        self.most_starts_in_flight = max(self.most_starts_in_flight, self.starts_in_flight)
        try:
            self.started.append(request)
            await self._admit(request, context)
            await run_script(self.before_start, request, context)
            if request.internal_id in self.tombstones:
                await refuse(context, "SESSION_STOPPED")  # during the start
            session = self._make(request)
            await run_script(self.after_start, request, context)
            return agent_pb2.StartSessionResponse(session=session, incarnation=self.incarnation)
        finally:
            self.starts_in_flight -= 1

    async def StopSession(  # noqa: N802
        self, request: agent_pb2.StopSessionRequest, context: Any
    ) -> agent_pb2.StopSessionResponse:
        await run_script(self.before_stop, request, context)
        self.stopped.append(request.internal_id)
        if request.internal_id not in self.sessions:
            self.tombstones.add(request.internal_id)
            await refuse(context, "SESSION_NOT_FOUND")
        if self.sessions[request.internal_id].state in LIVE:
            pool_id = self.sessions[request.internal_id].warm_pool
            self.end(request.internal_id, agent_pb2.END_REASON_STOPPED)
            self.fill(pool_id)
        session = copy.deepcopy(self.sessions[request.internal_id])
        if request.discard:
            self.tombstones.add(request.internal_id)
            self.lose(request.internal_id)
        return agent_pb2.StopSessionResponse(session=session, incarnation=self.incarnation)

    async def StreamLogs(  # noqa: N802
        self, request: agent_pb2.StreamLogsRequest, context: Any
    ) -> AsyncIterator[agent_pb2.StreamLogsResponse]:
        await run_script(self.before_logs, request, context)
        try:
            then = partial(run_script, self.after_logs, request, context)
            async for part in self.log.read(self.logs, request, then):
                yield part
        except (asyncio.CancelledError, GeneratorExit):  # wherever the call stands
            self.log_cancelled.set()
            raise

    async def GetReport(  # noqa: N802
        self, request: agent_pb2.GetReportRequest, context: Any
    ) -> agent_pb2.GetReportResponse:
        await run_script(self.before_report, request, context)
        session = await known_session(self.sessions, request, context)
        if session.state in LIVE:
            await refuse(context, "SESSIONLIVE")
        return self.report or report_of(session, b"".join(self.logs))

    async def PullImage(  # noqa: N802
        self, request: agent_pb2.PullImageRequest, context: Any
    ) -> AsyncIterator[agent_pb2.PullImageResponse]:
        await run_script(self.before_pull, request, context)
        self.pulled.append(request.image)
        login = request.credentials
        self.logins.append((login.username, login.password) if login.username else None)
        yield agent_pb2.PullImageResponse(
            layers=2, layers_done=1, received_bytes=4096, waiting=self.pull_waits
        )
        await run_script(self.during_pull, request, context)
        if request.image not in self.images:
            self.add_image(request.image)
        yield agent_pb2.PullImageResponse(layers=2, layers_done=2, done=True)

    async def RemoveImage(  # noqa: N802
        self, request: agent_pb2.RemoveImageRequest, context: Any
    ) -> agent_pb2.RemoveImageResponse:
        self.removal_asked.append(request.image)
        if request.image in self.images_in_use:
            await refuse(context, "IMAGE_IN_USE")
        if request.image in self.images:
            self.images.remove(request.image)
            self.report_images()
        return agent_pb2.RemoveImageResponse()

    async def SetWarmPool(  # noqa: N802
        self, request: agent_pb2.SetWarmPoolRequest, context: Any
    ) -> agent_pb2.SetWarmPoolResponse:
        await run_script(self.before_order, request, context)
        known = self.pools.get(request.pool_id)
        if known is not None and request.revision < known.revision:
            await refuse(context, "STALE_REVISION")
        self.orders.append(request)
        self.pools[request.pool_id] = request
        self.fill(request.pool_id)
        return agent_pb2.SetWarmPoolResponse()

    async def ClaimSessions(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ClaimSessionsRequest], context: Any
    ) -> AsyncIterator[agent_pb2.ClaimSessionsResponse]:
        results: asyncio.Queue[agent_pb2.ClaimResult | None] = asyncio.Queue()

        async def claim(one: agent_pb2.Claim) -> None:
            result = agent_pb2.ClaimResult(number=one.number)
            try:
                result.MergeFrom(await self._claim(one, ClaimContext(context)))
            except RefusedClaimError as error:
                result.reason = error.reason
                result.error = error.text
            results.put_nowait(result)

        async def carry_out() -> None:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    for one in request.claims:
                        group.create_task(claim(one))

        working = asyncio.create_task(carry_out())
        working.add_done_callback(lambda _: results.put_nowait(None))
        try:
            while (result := await results.get()) is not None:
                yield agent_pb2.ClaimSessionsResponse(
                    results=[result], incarnation=self.incarnation
                )
        finally:
            working.cancel()

    async def _claim(self, request: agent_pb2.Claim, context: Any) -> agent_pb2.ClaimResult:
        await run_script(self.before_claim, request, context)
        session = self.sessions.get(request.internal_id)
        if session is None or not is_claimable(session, request):
            await refuse(context, "STANDBY_NOT_CLAIMABLE")
        assert session is not None
        self.claimed.append(request)
        pool_id = session.warm_pool
        is_known = is_known_standby(session, request, self.incarnation)
        session.identity.CopyFrom(request.identity)
        if request.HasField("ttl") and pool_id:
            session.expire_time.FromNanoseconds(time.time_ns() + request.ttl.ToNanoseconds())
        session.injected_env["TILTYARD_SESSION_ID"] = request.identity.session_id
        session.warm_pool = ""
        session.in_doubt = False
        self._notify(session)
        result = claim_result(session, is_known=is_known)
        if pool_id:
            self.fill(pool_id)
        await run_script(self.after_claim, request, context)
        return result

    async def SetDrain(  # noqa: N802
        self, request: agent_pb2.SetDrainRequest, context: Any
    ) -> agent_pb2.SetDrainResponse:
        await run_script(self.before_drain, request, context)
        if 0 < request.revision < self.host.drain_revision:
            await refuse(context, "STALE_REVISION")
        self.drains.append(request)
        if request.HasField("deadline_time"):
            self.host.drain_time.CopyFrom(request.deadline_time)
        else:
            self.host.ClearField("drain_time")
        revision = request.revision or self.host.drain_revision
        self.change_host(draining=request.draining, drain_revision=revision)
        return agent_pb2.SetDrainResponse(sessions=len(self.live))

    # ---- inside

    def fill(self, pool_id: str) -> None:
        """Fill a pool with standbys of the ordered spec as far as there is room."""
        order = self.pools.get(pool_id, agent_pb2.SetWarmPoolRequest())
        mine = [s for s in self.standbys if s.warm_pool == pool_id]
        kept = [s for s in mine if self._specs[s.internal_id] == order.spec][: order.size]
        ids = {session.internal_id for session in kept}
        gone = [session for session in mine if session.internal_id not in ids]
        for session in gone:
            session.end_time.GetCurrentTime()
            session.state = agent_pb2.STATE_EXITED
            session.end_reason = agent_pb2.END_REASON_STOPPED
        room = min(self.host.free_sessions, MOST_SESSIONS) - len(self._all_live)
        new = [self._standby(order) for _ in range(min(order.size - len(kept), room))]
        self._notify(*gone, *new)
        for session in gone:
            self.lose(session.internal_id)

    def _standby(self, order: agent_pb2.SetWarmPoolRequest) -> agent_pb2.Session:
        start = agent_pb2.StartSessionRequest(internal_id=str(uuid.uuid4()), spec=order.spec)
        start.spec.identity.session_id = start.internal_id
        session = self._new(start)
        session.warm_pool = order.pool_id
        session.warm_pool_revision = order.revision
        self._specs[session.internal_id] = order.spec
        return session

    async def _admit(self, request: agent_pb2.StartSessionRequest, context: Any) -> None:
        """Refuse requests that an agent refuses before checking its room."""
        internal_id = request.internal_id
        if internal_id in self.sessions:
            if self._specs.get(internal_id, request.spec) != request.spec:
                await refuse(context, "SPEC_CONFLICT")
        elif internal_id in self.tombstones:
            await refuse(context, "SESSION_STOPPED")
        elif self.host.draining:
            await refuse(context, "DRAINING")
        elif request.spec.image not in self.images:
            await refuse(context, "IMAGE_MISSING")

    def _make(self, request: agent_pb2.StartSessionRequest) -> agent_pb2.Session:
        """Start a session, or join a running start of the same id."""
        if request.internal_id not in self.sessions:
            self._specs[request.internal_id] = copy.deepcopy(request.spec)
            take_prepared(self.host, request.spec)
            self._notify(self._new(request))
        return copy.deepcopy(self.sessions[request.internal_id])

    def _new(self, request: agent_pb2.StartSessionRequest) -> agent_pb2.Session:
        spec = request.spec
        first = 20000 + 10 * len(self.sessions)
        session = agent_pb2.Session(
            format=1,
            internal_id=request.internal_id,
            identity=spec.identity,
            image=spec.image,
            state=self.start_state,
            ports=[
                agent_pb2.Port(
                    container_port=port.container_port,
                    protocol=port.protocol,
                    host_port=port.pinned_host_port or first + number,
                    tls=port.tls,
                )
                for number, port in enumerate(spec.ports)
            ],
            reservation=spec.reservation,
            injected_env={"TILTYARD_SESSION_ID": spec.identity.session_id},
            host=self.host.public_address,
        )
        session.create_time.GetCurrentTime()
        if self.binds_at_once:
            session.ready_time.GetCurrentTime()
        if session.state not in LIVE:
            session.end_time.GetCurrentTime()
            session.end_reason = agent_pb2.END_REASON_EXITED
        self.sessions[request.internal_id] = session
        return session

    def _notify(self, *sessions: agent_pb2.Session) -> None:
        reached = self.sequence
        for session in sessions:
            self._stamp(session)
        batch = agent_pb2.SessionBatch(sessions=sessions)
        host = self._host()  # it has counted the sessions that follow
        host.starting.extend(session.internal_id for session in sessions)
        # Only the last message includes everything up to the sequence of the sessions.
        self._send(agent_pb2.WatchResponse(host=host), reached)
        self._send(agent_pb2.WatchResponse(sessions=batch))

    def _stamp(self, session: agent_pb2.Session) -> None:
        self.sequence += 1
        session.sequence = self.sequence

    def _host(self) -> agent_pb2.Host:
        return host_with(self.host, self.pools.values(), self._all_live)

    def _snapshot(self, acked: int = 0) -> list[agent_pb2.WatchResponse]:
        known = (s for s in self.sessions.values() if s.state in LIVE or s.sequence > acked)
        sessions = [copy.deepcopy(s) for s in sorted(known, key=lambda s: s.sequence)]
        end = agent_pb2.SnapshotEnd(reconciled=self.reconciled)
        images = self._image_batches() if self.knows_images else []
        return [
            agent_pb2.WatchResponse(snapshot_begin=agent_pb2.SnapshotBegin()),
            *images,
            agent_pb2.WatchResponse(host=self._host()),
            agent_pb2.WatchResponse(sessions=agent_pb2.SessionBatch(sessions=sessions)),
            agent_pb2.WatchResponse(snapshot_end=end),
        ]

    def _image_batches(self) -> list[agent_pb2.WatchResponse]:
        sizes = {image: self.image_sizes.get(image, 0) for image in self.images}
        return [agent_pb2.WatchResponse(images=batch) for batch in image_batches(sizes)]

    def _send(self, response: agent_pb2.WatchResponse, sequence: int | None = None) -> None:
        stamped = self._stamped(response)
        stamped.sequence = self.sequence if sequence is None else sequence
        for watcher in self._watchers:
            watcher.put_nowait(stamped)

    def _stamped(self, response: agent_pb2.WatchResponse) -> agent_pb2.WatchResponse:
        stamped = copy.deepcopy(response)
        stamped.incarnation = self.incarnation
        stamped.sequence = self.sequence
        return stamped
