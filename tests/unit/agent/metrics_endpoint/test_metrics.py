"""Metrics follow events and state, and the number of series is bounded."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import aiohttp
import pytest

from agent.domain.errors import EngineTimeoutError, NoCapacityError, RegistryTimeoutError
from agent.kernel.disks import Disk, Disks
from agent.metrics_endpoint.listener import MetricsListener
from agent.network.tls_ports import TlsPorts
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, Host, pulled, until, until_sealed
from tests.support.agent.pools import a_claim, a_pool, kept_full, ordered, ready
from tests.support.agent.samples import IMAGE, MEBIBYTE, a_session, a_spec, an_id
from tests.support.agent.scraped import CLOCK, Scraped, scraped, scraped_from
from tests.support.agent.served import served
from tests.support.fake_clock import until_idle
from tests.support.fake_engine import FakeEngine
from tests.support.harness import free_port
from tests.support.tasks import running
from tiltyard.contract import EndReason, Identity, Protocol, Resources, State
from tiltyard.runtime.bounded_names import MAX_NAMES, OTHER
from tiltyard.runtime.metrics import loop_lag

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
SECTION = PAGE.read_text("utf-8").split("## Agent\n", 1)[1].split("\n## ", 1)[0]
ABSENT = "127.0.0.1:5000/other@sha256:" + "b" * 64


@pytest.fixture
async def agent(host: Host) -> AsyncIterator[Agent]:
    disks = Disks(
        MEBIBYTE,
        host.folder,
        lambda path, kept: Disk(path, 7 * MEBIBYTE, kept, free_inodes=9000, reserve_inodes=5000),
    )
    async with host(cores=8, disks=disks) as agent:
        yield agent


@pytest.fixture
async def scrape(agent: Agent) -> AsyncIterator[Scraped]:
    async with scraped(agent) as found:
        yield found


# -- sessions -----------------------------------------------------------------------------------


async def test_times_each_phase_of_a_cold_start(agent: Agent, scrape: Scraped) -> None:
    agent.engine.binds_at_once = False
    for call in ("create", "start"):
        agent.engine.hold(call)
    internal_id = an_id()
    start = asyncio.create_task(agent.sessions.start(internal_id, a_spec()), name="start")
    await agent.engine.held("create")
    await agent.clock.advance(2)
    agent.engine.release("create")
    await agent.engine.held("start")
    await agent.clock.advance(3)
    agent.engine.release("start")
    await start
    await agent.clock.advance(4)
    agent.engine.find(f"tiltyard-{internal_id}").bind()
    await agent.clock.advance(1)
    now = await scrape()
    took = {
        phase: now("start_phase_duration_seconds_sum", phase=phase, kind="cold")
        for phase in ("queue", "create", "start", "ready")
    }
    assert 4 <= (took.pop("ready") or 0) <= 5
    assert took == {"queue": 0, "create": 2, "start": 3}
    assert now("start_duration_seconds_sum", kind="cold") == 5
    assert now("start_duration_seconds_count", kind="cold") == 1
    assert now("start_duration_seconds_count", kind="warm") == 0


@mock.patch("agent.sessions.starting.START_WAIT_SECONDS", None)
async def test_queue_phase_is_the_wait_for_a_slot(host: Host) -> None:
    async with host(start_slots=1) as agent, scraped(agent) as scrape:
        host.engine.hold("create")
        starts = [asyncio.create_task(agent.sessions.start(an_id(), a_spec())) for _ in range(2)]
        await host.engine.held("create")
        await until(lambda: len(agent.reservations.start_slots.waiting) == 1)
        now = await scrape()
        assert now("start_slots") == 1
        assert now("starts_in_progress") == 1
        assert now("starts_waiting") == 1
        await host.clock.advance(1)
        host.engine.release("create")
        await asyncio.gather(*starts)
        now = await scrape()
        assert now("start_phase_duration_seconds_sum", phase="queue", kind="cold") == 1
        assert now("starts_in_progress") == 0
        assert now("starts_waiting") == 0


async def test_counts_sessions_by_state_and_ends_by_reason(agent: Agent, scrape: Scraped) -> None:
    sessions = [await agent.sessions.start(an_id(), a_spec()) for _ in range(2)]
    now = await scrape()
    assert now("sessions", application="game", state="running") == 2
    assert now("sessions", application="game", state="exited") == 0
    await agent.sessions.stop(sessions[0].internal_id, EndReason.STOPPED)
    agent.engine.end(sessions[1].container, 1)
    await agent.reached(sessions[1].internal_id)
    now = await scrape()
    assert now("sessions", application="game", state="running") == 0
    assert now("sessions", application="game", state="exited") == 2
    assert now("session_ends_total", kind="session", reason="stopped") == 1
    assert now("session_ends_total", kind="session", reason="exited") == 1
    assert now("session_ends_total", kind="standby", reason="stopped") == 0
    assert now("session_stop_duration_seconds_count") == 1


async def test_counts_forced_stops_and_signals_that_no_game_received(
    agent: Agent, scrape: Scraped
) -> None:
    sessions = [await agent.sessions.start(an_id(), a_spec()) for _ in range(2)]
    for session in sessions:
        agent.engine.ignores_sigterm.add(session.container)
    deaf = agent.engine.program_of(sessions[1].container)
    deaf.member = replace(deaf.member, pending=1 << 14)  # SIGTERM
    stops = [
        asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        for session in sessions
    ]
    await agent.clock.advance(11)
    await asyncio.gather(*stops)
    now = await scrape()
    assert now("session_stops_forced_total") == 2
    assert now("session_signals_missed_total", signal="stop") == 1
    assert now("session_signals_missed_total", signal="claim") == 0


async def test_counts_claims_whose_signal_no_game_received(agent: Agent, scrape: Scraped) -> None:
    async with kept_full(agent):
        await ordered(agent, a_pool(1, claim_signal="SIGUSR1"))
    [standby] = ready(agent)
    game = agent.engine.program_of(standby.container)
    game.member = replace(game.member, caught=0)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
    now = await scrape()
    assert now("session_signals_missed_total", signal="claim") == 1
    assert now("session_stops_forced_total") == 0


async def test_counts_refused_starts_by_reason(agent: Agent, scrape: Scraped) -> None:
    with pytest.raises(NoCapacityError):
        await agent.sessions.start(an_id(), a_spec(reservation=Resources(nano_cpus=10**12)))
    agent.engine.fail_next("create", EngineTimeoutError("create"))
    with pytest.raises(EngineTimeoutError):
        await agent.sessions.start(an_id(), a_spec())
    now = await scrape()
    assert now("start_refusals_total", kind="cold", reason="no_capacity") == 1
    assert now("start_refusals_total", kind="cold", reason="engine_timeout") == 1
    assert now("start_duration_seconds_count", kind="cold") == 0


async def test_is_unhealthy_and_refuses_starts_before_reconciliation(host: Host) -> None:
    async with host(reconcile=False) as agent, scraped(agent) as scrape:
        with pytest.raises(Exception, match="not reconciled"):
            await agent.sessions.start(an_id(), a_spec())
        now = await scrape()
        assert now("start_refusals_total", kind="cold", reason="not_reconciled") == 1
        assert now("reconciled") == 0
        assert await scrape.healthz() == 503
        await agent.pass_over()
        assert (await scrape())("reconciled") == 1
        assert await scrape.healthz() == 200


async def test_counts_restarts_late_ends_and_sealed_logs(agent: Agent, scrape: Scraped) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True, ttl=60.0))
    agent.engine.write_log(session.container, b"hello\n")
    await agent.fail(session)
    await agent.clock.advance(63)  # nothing ends it on time
    agent.sessions.end_due()
    await until_sealed(agent, session.internal_id)
    now = await scrape()
    assert now("session_restarts_total") == 1
    assert now("log_sealed_bytes_total") == 6
    assert now("ttl_lateness_seconds_count") == 1
    assert now("ttl_lateness_seconds_sum") == pytest.approx(3)
    assert now("session_ends_total", kind="session", reason="ttl") == 1


async def test_distinguishes_standbys_claims_and_starts(agent: Agent, scrape: Scraped) -> None:
    agent.engine.binds_at_once = False
    async with kept_full(agent, a_pool(2)):
        await until(lambda: len(agent.engine.living) == 2)
        await until_idle()
        now = await scrape()
        assert now("standbys_wanted", application="game") == 2
        assert now("standbys_ready", application="game") == 0
        assert now("standbys_unready", application="game") == 2
        for container in agent.engine.containers(agent.runtime.agent_id):
            agent.engine.find(container.name).bind()
        await agent.clock.advance(1)
        now = await scrape()
        assert now("standbys_ready", application="game") == 2
        assert now("standbys_unready", application="game") == 0
        assert now("sessions", application="game", state="running") is None
        assert now("start_phase_duration_seconds_count", phase="ready", kind="standby") == 2
        await agent.warm_pools.claim(ready(agent)[0].internal_id, a_claim())
        now = await scrape()
        assert now("start_duration_seconds_count", kind="warm") == 1
        assert now("start_duration_seconds_count", kind="cold") == 0
        assert now("standbys_ready", application="game") == 1
        assert now("sessions", application="game", state="running") == 1
        with pytest.raises(Exception, match="unknown"):
            await agent.warm_pools.claim(an_id(), a_claim())
        now = await scrape()
        assert now("start_refusals_total", kind="warm", reason="standby_not_claimable") == 1


async def test_counts_standby_without_capacity(agent: Agent, scrape: Scraped) -> None:
    async with kept_full(agent):
        await ordered(agent, a_pool(1, reservation=Resources(nano_cpus=10**11)))
    assert (await scrape())("start_refusals_total", kind="standby", reason="no_capacity")


# -- the host -----------------------------------------------------------------------------------


async def test_shows_allocatable_and_reserved_resources(agent: Agent, scrape: Scraped) -> None:
    before = await scrape()
    await agent.sessions.start(an_id(), a_spec())
    after = await scrape()
    assert before("capacity_ports", protocol="udp") == 100
    assert before("free_ports", protocol="udp") == 100
    assert after("free_ports", protocol="udp") == 99
    assert after("free_ports", protocol="tcp") == 99
    assert after("capacity_cores") == 8
    assert before("reserved_cores") == 0
    assert after("reserved_cores") == 0.1
    assert after("reserved_memory_bytes") == 32 * MEBIBYTE
    assert after("capacity_memory_bytes") == 64 * 1024 * MEBIBYTE
    assert after("capacity_gpus") == 0
    assert after("reserved_gpus") == 0
    assert after("capacity_sessions") == 1000
    assert after("reserved_sessions") == 1


async def test_counts_and_times_pulls(agent: Agent, scrape: Scraped) -> None:
    agent.engine.image_store.registry.add(ABSENT)
    pull = await agent.engine.held_in("pull", pulled(agent.images, ABSENT))
    assert (await scrape())("image_pulls_in_progress", state="pulling") == 1
    agent.engine.release("pull")
    await pull
    agent.engine.fail_next("pull", RegistryTimeoutError(IMAGE, "no answer"))
    with pytest.raises(RegistryTimeoutError):
        await pulled(agent.images, ABSENT.replace("b", "c"))
    now = await scrape()
    assert now("image_pulls_in_progress", state="pulling") == 0
    assert now("image_pulls_total", outcome="ok") == 1
    assert now("image_pulls_total", outcome="registry_timeout") == 1
    assert now("image_pull_duration_seconds_count") == 1


async def test_shows_unavailable_engine(agent: Agent, scrape: Scraped) -> None:
    async with running(agent.reconciler.run()):
        await until_idle()
        before = await scrape()
        assert before("engine_available") == 1
        agent.engine.unavailable = True
        await agent.clock.advance(10)
    after = await scrape()
    assert after("engine_available") == 0
    assert before("reconcile_failures_total") == 0
    assert (after("reconcile_failures_total") or 0) > 0
    assert (before("reconcile_duration_seconds_count") or 0) > 0


async def test_each_scrape_reads_the_host(agent: Agent, scrape: Scraped, tmp_path: Path) -> None:
    now = await scrape()
    assert now("disk_free_bytes", path=str(tmp_path)) == 7 * MEBIBYTE
    assert now("disk_reserve_bytes", path=str(tmp_path)) == MEBIBYTE
    assert now("disk_free_inodes", path=str(tmp_path)) == 9000
    assert now("disk_reserve_inodes", path=str(tmp_path)) == 5000
    assert now("firewall_intact") == 1
    assert now("ports_led_elsewhere", protocol="udp") == 0
    assert now("conntrack_flush_failures_total") == 0
    assert now("warnings") == 1
    assert now("watch_streams") == 0
    assert now("tls_connections") == 0
    scrape.firewall_intact = False
    scrape.led_elsewhere = [(Protocol.UDP, 20000), (Protocol.UDP, 20001)]
    scrape.flush_failures = 3
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    with agent.runtime.feed.subscribe():
        now = await scrape()
    assert now("draining") == 1
    assert now("watch_streams") == 1
    assert now("firewall_intact") == 0
    assert now("ports_led_elsewhere", protocol="udp") == 2
    assert now("ports_led_elsewhere", protocol="tcp") == 0
    assert now("conntrack_flush_failures_total") == 3
    [build] = now.own["tiltyard_agent_build_info"].samples
    assert build.labels["version"] == "1.2.3"
    [host] = now.own["tiltyard_agent_engine_info"].samples
    assert host.labels == {"version": "27.0", "runc": "1.1", "kernel": "6.1"}
    assert "process_resident_memory_bytes" in now.families
    assert "python_gc_collections" in now.families


# -- all metrics --------------------------------------------------------------------------------


@mock.patch.object(TlsPorts, "expire_time", 1.0)
async def test_page_and_alerts_match_the_metrics(agent: Agent, scrape: Scraped) -> None:
    await agent.sessions.start(an_id(), a_spec())
    await agent.warm_pools.set(a_pool(1))
    table, alerts = SECTION.split("### Alerts", 1)
    rows = re.findall(r"^\| `(tiltyard_agent_\w+)` \| (\w+) \|", table, re.MULTILINE)
    found = set()
    for family in agent.runtime.metrics.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found.add((family.name + suffix, "gauge" if family.type == "info" else family.type))
    assert set(rows) == found
    used = {re.sub("_bucket$", "", name) for name in re.findall(r"tiltyard_agent_\w+", alerts)}
    assert used
    assert used <= {name for name, _ in rows}


async def test_number_of_series_is_bounded(
    agent: Agent, scrape: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [Identity("a", "s", f"game-{number}", "v1", "local") for number in range(10_000)]
    many = [a_session(spec=a_spec(identity=each), state=State.RUNNING) for each in names]
    monkeypatch.setattr(agent.sessions, "each", lambda: iter(many))
    for _ in range(2):  # also if the names change between scrapes
        now = await scrape()
        assert len(now.own["tiltyard_agent_sessions"].samples) == len(State) * (MAX_NAMES + 1)
        assert sum(len(family.samples) for family in now.own.values()) < 2000
        samples = now.own["tiltyard_agent_sessions"].samples
        assert sum(each.value for each in samples if each.labels["state"] == "running") == 10_000
        many.reverse()
    assert now("sessions", application=OTHER, state="running") == 10_000 - MAX_NAMES


# -- the listener -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /else HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"400"),
    ],
)
async def test_rejects_malformed_requests_without_warnings(
    scrape: Scraped, sent: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection(*scrape.address.split(":"))
    writer.write(sent)
    assert status in await reader.readline()
    writer.close()
    assert not [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
    await scrape()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT"])
@mock.patch("agent.metrics_endpoint.listener.CONNECTION_SECONDS", 0.05)
async def test_closes_slow_and_idle_connections(agent: Agent, sent: bytes) -> None:
    async with scraped(agent) as scrape:
        reader, writer = await asyncio.open_connection(*scrape.address.split(":"))
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()  # until closed
        writer.close()


@mock.patch("agent.metrics_endpoint.listener.MAX_CONNECTIONS", 4)
async def test_held_connections_do_not_block_scrapes(agent: Agent, scrape: Scraped) -> None:
    held = [await asyncio.open_connection(*scrape.address.split(":")) for _ in range(12)]
    for reader, _ in held[:8]:  # the oldest are closed
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    assert (await scrape())("reconciled") == 1
    for _, writer in held:
        writer.close()


async def test_metrics_port_may_be_in_use(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as taken:
        address = f"127.0.0.1:{port}"
        registry = agent.runtime.metrics.registry
        listener = MetricsListener(address, registry, agent.clock, is_ready=lambda: True)
        async with running(listener.run()):
            await until(lambda: "not serving metrics yet" in caplog.text)
            await agent.sessions.start(an_id(), a_spec())
            await agent.clock.advance(5)
            assert caplog.text.count("not serving metrics yet") == 1
            assert not listener.serving.is_set()
            taken.close()
            await agent.clock.advance(1)
            await listener.serving.wait()


@mock.patch.object(loop_lag, "INTERVAL_SECONDS", 0.001)
async def test_serves_metrics_and_counts_rpcs(tmp_path: Path, engine: FakeEngine) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with (
        aiohttp.ClientSession() as client,
        served(tmp_path, engine, CLOCK, metrics_listen=address) as agent,
    ):
        session = await agent.sessions.start(an_id(), a_spec())
        engine.write_log(session.container, b"hello\n")
        engine.find(session.container).put_file("/save", b"x" * 100)
        await agent.ok("logs", session.internal_id)
        await agent.ok("stop", session.internal_id)
        archive = await agent.run("artifact", session.internal_id, "/save")
        now = await scraped_from(client, address)
        async with client.get(f"http://{address}/healthz") as answer:
            assert answer.status == 200
    assert now("streamed_bytes_total", stream="log") == 6
    assert len(archive.stdout_bytes) > 0
    assert now("streamed_bytes_total", stream="artifact") == len(archive.stdout_bytes)
    assert now("rpcs_total", method="StreamLogs", outcome="ok") == 1
    assert (now("rpc_duration_seconds_count", method="StopSession") or 0) == 1
    assert (now("reconcile_duration_seconds_count") or 0) >= 1
    assert (now("event_loop_lag_seconds_count") or 0) >= 1
