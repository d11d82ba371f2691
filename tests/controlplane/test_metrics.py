"""The metrics of the control plane, over the listener that they are read from."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import SessionsReported, WatchMessage
from controlplane.metrics_endpoint.live import LiveCollector
from controlplane.storage.tables.sessions.sessions import reserve
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.enrolling import Enrolling
from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.scrapes import PREFIX, PROCESS, Scrape, Scraped
from tests.support.controlplane.transactions import fail_once, intercept
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import Identity
from tiltyard.runtime.bounded_names import MAX_NAMES, OTHER
from tiltyard.runtime.clock import SystemClock

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text("utf-8")

pytestmark = pytest.mark.system(kind=Scraped, application={})


# ---- the listener


async def test_metrics_have_a_listener_of_their_own(system: Scraped) -> None:
    assert (await system.call("GET", "/metrics")).status == 404
    for path in ("/", "/session", "/metrics/x"):
        async with system.http.get(system.control_plane.metrics_url + path) as response:
            assert response.status == 404
    async with system.http.post(f"{system.control_plane.metrics_url}/metrics") as response:
        assert response.status == 405


async def test_metrics_describe_the_program_and_its_process(system: Scraped) -> None:
    scrape = await system.scrape()
    assert scrape.sum("build_info") == 1
    assert "process_resident_memory_bytes" in scrape.families
    assert "python_gc_collections" in scrape.families


async def test_scrapes_run_one_by_one(system: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    refresh = LiveCollector.refresh
    lock = asyncio.Lock()

    async def alone(live: LiveCollector) -> None:
        assert not lock.locked()
        async with lock:
            await refresh(live)

    monkeypatch.setattr(LiveCollector, "refresh", alone)
    scrapes = await asyncio.gather(*(system.scrape() for _ in range(8)))
    assert all(scrape.sum("agents") == 1 for scrape in scrapes)


# ---- requests


async def test_requests_are_counted_by_route_and_status(system: Scraped) -> None:
    await system.start(id="one")
    for session in ("one", "two"):
        await system.call("GET", f"/session/{session}")
    await system.call("GET", "/session/one", token="bad")
    scrape = await system.scrape()
    routes = {"method": "GET", "route": "/session/{id}"}
    for status in ("200", "404", "401"):
        assert scrape.sum("http_requests_total", **routes, status=status) == 1
    assert scrape.sum("http_request_duration_seconds_count", **routes) == 3
    assert scrape.sum("authentication_failures_total") == 1
    assert scrape.sum("http_connections", listener="api") >= 1
    assert scrape.sum("http_requests_in_progress") == 0


async def test_starts_that_wait_or_whose_caller_hangs_up_are_counted(system: Scraped) -> None:
    system.agent.change_host(start_slots=1)
    await system.has_reported("a0", start_slots=1)
    system.agent.before_start = system.agent.hang
    starts = [asyncio.create_task(system.start()) for _ in range(3)]
    await system.shows(lambda s: s.sum("starts_waiting", region="local") == 2)
    scrape = await system.scrape()
    assert scrape.sum("http_requests_in_progress") == 3
    assert scrape.sum("starts_in_progress") == 3
    starts[0].cancel()
    await system.agent.stop()  # which lets go of what hangs
    await asyncio.gather(*starts[1:])
    await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    await system.shows(lambda s: s.sum("starts_waiting") == 0)


@pytest.mark.system(kind=Scraped, max_connections=1)
async def test_a_connection_too_many_is_counted(system: Scraped) -> None:
    async with Wire(system.port), Wire(system.port) as second:
        assert await second.ends() == b""
        scrape = await system.scrape()
    assert scrape.sum("http_connections_refused_total", listener="api") == 1


def series_of_http(scrape: Scrape) -> set[object]:
    found: set[object] = {each for each in scrape.series() if each[0].startswith(PREFIX + "http_")}
    assert found
    return found


async def test_no_path_and_no_method_makes_a_series(system: Scraped) -> None:
    hostile = ("/nope", "/session/a/b/c", "/%00", "/x" * 2000)
    await system.call("GET", "/session/once")
    await system.call("GET", "/nothing")
    before = series_of_http(await system.scrape())
    for number in range(50):
        await system.call("GET", f"/session/{number}")
        await system.call("GET", f"/{number}{hostile[number % 4]}")
    assert series_of_http(await system.scrape()) == before
    for method in ("PATCH", "TRACE", "PURGE"):
        await system.call(method, "/session")
    scrape = await system.scrape()
    assert scrape.sum("http_requests_total", method="other", route="unmatched", status="405") == 3
    assert scrape.values("http_requests", "method") == {"GET", "POST", "other"}


class EnrollingScraped(Scraped, Enrolling):
    """Has both listeners."""


@pytest.mark.system(kind=EnrollingScraped)
async def test_enrolments_are_requests_too(system: EnrollingScraped) -> None:
    await system.enrol(address="127.0.0.1:1")
    await system.enrol("ty_bad")
    scrape = await system.scrape()
    assert scrape.sum("http_requests_total", route="/enrol", status="201") == 1
    assert scrape.sum("http_requests_total", route="/enrol", status="401") == 1
    expiry = scrape.sum("agent_certificate_expiry_timestamp_seconds", region="local")
    assert 20 * 86400 < expiry - SystemClock().time() < 31 * 86400
    own = scrape.sum("certificate_expiry_timestamp_seconds", certificate="controlplane")
    assert own > SystemClock().time()
    system.clock.wall_ahead = 25 * 86400.0
    await system.control_plane.renewal.renew()  # no agent is at the host's address
    scrape = await system.scrape()
    renewals = "certificate_renewals_total"
    assert scrape.sum(renewals, certificate="agent", result="failed") == 1
    assert scrape.sum(renewals, certificate="controlplane", result="renewed") == 1


async def test_bytes_of_logs_and_artifacts_are_counted(system: Scraped) -> None:
    await system.start(id="s")
    system.agent.logs = [b"x" * 1000, b"y" * 500]
    assert len((await system.call("GET", "/logs?id=s")).body) == 1500
    follower = asyncio.create_task(system.call("GET", "/logs?id=s&follow=true"))
    await system.shows(lambda s: s.sum("open_streams") == 1)
    system.agent.log.ended.set()
    await follower
    await system.call("DELETE", "/session/s")
    artifact = (await system.call("GET", "/artifacts?session=s&path=/x")).body
    scrape = await system.scrape()
    assert scrape.sum("streamed_bytes_total", stream="log") == 3000
    assert len(artifact) > 0
    assert scrape.sum("streamed_bytes_total", stream="artifact") == len(artifact)
    assert scrape.sum("open_streams") == 0


# ---- starts


async def test_cold_starts_are_timed_by_their_phases(system: Scraped) -> None:
    assert (await system.start()).status == 201
    scrape = await system.scrape()
    assert scrape.sum("start_duration_seconds_count", kind="cold", result="started") == 1
    assert scrape.values("start_phase_duration_seconds", "phase") == {
        "prepare",
        "reserve",
        "claim",
        "queue",
        "agent",
        "confirm",
    }
    phases = scrape.sum("start_phase_duration_seconds_sum")
    assert 0 < phases <= scrape.sum("start_duration_seconds_sum")
    assert scrape.sum("agent_calls_total", method="StartSession", outcome="ok") == 1
    assert scrape.sum("agent_call_duration_seconds_count", method="StartSession") == 1


async def test_claims_are_warm_starts(system: Scraped) -> None:
    await system.call("PUT", "/warm-pool/game/local", json={"size": 2})
    await system.shows(lambda s: s.sum("standbys_ready", application="game") == 2)
    assert (await system.start()).status == 201
    scrape = await system.scrape()
    assert scrape.sum("standbys_wanted", account="alice", application="game") == 2
    assert scrape.sum("start_duration_seconds_count", kind="warm", result="started") == 1
    assert "agent" not in scrape.values("start_phase_duration_seconds", "phase")
    assert scrape.sum("agent_calls_total", method="ClaimSession", outcome="ok") == 1


async def test_start_that_waited_for_a_slot_has_a_phase_for_the_commit_of_its_attempt(
    system: Scraped,
) -> None:
    """A start that finds a free slot commits its attempt with its row, in the phase `reserve`."""
    system.agent.change_host(start_slots=0)
    await system.has_reported("a0", start_slots=0)
    start = asyncio.create_task(system.start())
    await system.shows(lambda s: s.sum("starts_waiting", region="local") == 1)
    system.agent.change_host(start_slots=1)
    assert (await start).status == 201
    scrape = await system.scrape()
    assert scrape.sum("start_phase_duration_seconds_count", phase="commit") == 1


async def test_refusals_are_counted_by_their_reason(system: Scraped) -> None:
    await system.start(id="taken")
    await system.start(id="taken")
    await system.start(image="nothing")
    system.agent.before_start = refusing("NO_CAPACITY")
    assert (await system.start()).status == 420
    system.agent.before_start = refusing("IMAGE_CANNOT_RUN")
    assert (await system.start()).status == 420
    scrape = await system.scrape()
    reported = {
        reason: scrape.sum("start_refusals_total", reason=reason)
        for reason in scrape.values("start_refusals", "reason")
    }
    assert {reason: count for reason, count in reported.items() if count} == {
        "conflict": 1,
        "not_found": 1,
        "no_room": 1,
        "image_cannot_run": 1,
    }
    for outcome in ("no_capacity", "image_cannot_run"):
        assert scrape.sum("agent_calls_total", method="StartSession", outcome=outcome) == 1
    assert scrape.sum("start_duration_seconds_count", kind="none", result="refused") == 3


@pytest.mark.system(kind=Scraped, start_rate=0.001, start_burst=1, application={})
async def test_a_start_rate_and_a_full_database_are_reasons(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.start()
    assert (await system.start()).status == 420

    intercept(monkeypatch, reserve, fail_once(StoreError("the disk is full")))
    assert (await system.start()).status == 503
    scrape = await system.scrape()
    assert scrape.sum("start_refusals_total", reason="rate") == 1
    assert scrape.sum("start_refusals_total", reason="database_failed") == 1


async def test_the_wait_for_bound_ports_is_timed(system: Scraped) -> None:
    headers = {"Prefer": "wait=ready"}
    (await system.start(headers=headers)).expect(201)
    system.agent.start_state = agent_pb2.STATE_EXITED
    (await system.start(headers=headers)).expect(504)
    scrape = await system.scrape()
    for result in ("ready", "not_ready"):
        assert scrape.sum("start_ready_wait_duration_seconds_count", result=result) == 1


# ---- the fleet


async def test_sessions_and_room_are_shown_as_they_are(system: Scraped) -> None:
    before = await system.scrape()
    await system.start(id="s")
    await system.start(id="t")
    labels = {"region": "local", "account": "alice", "application": "game"}
    await system.shows(lambda s: s.sum("sessions", **labels, state="running") == 2)
    await system.shows(lambda s: s.sum("reserved_cores") == 2)
    scrape = await system.scrape()
    place = {"region": "local", "node_pool": "default"}
    assert scrape.sum("capacity_cores", **place) == 64
    assert before.sum("free_cores", **place) - scrape.sum("free_cores", **place) == 2
    assert scrape.sum("reserved_memory_bytes", **place) == 512 * 1024**2
    assert scrape.sum("free_memory_bytes", **place) == 64 * 1024**3 - 512 * 1024**2
    assert scrape.sum("free_ports", **place, protocol="udp") == 10001
    assert before.sum("free_session_slots") - scrape.sum("free_session_slots") == 2
    await system.call("DELETE", "/session/s")
    await system.shows(lambda s: s.sum("sessions", **labels, state="running") == 1)


async def test_unclaimed_sessions_are_counted_apart(system: Scraped) -> None:
    await system.start()
    await system.shows(lambda s: s.sum("sessions") == 1)
    await system.catches_up()
    link = system.link()
    for session in link.state.live():
        link.state.note_unclaimed(session.internal_id)
    scrape = await system.scrape()
    assert scrape.sum("unclaimed_sessions", region="local", node_pool="default") == 1
    assert scrape.sum("sessions") == 0


@pytest.mark.system(kind=Scraped, agents=3, unreachable_after=2.0, unresponsive_after=2.0)
async def test_agents_are_counted_by_their_state(system: Scraped) -> None:
    for agent in system.agents:
        agent.beat = 0.05
        agent.drop_watch()
    await system.make_application()
    await system.shows(lambda s: s.sum("agents", state="ready") == 3)
    await system.start(id="s")
    (busy,) = (agent for agent in system.agents if agent.live)
    idle = next(agent for agent in system.agents if agent is not busy)
    idle.change_host(engine_available=False)
    await system.shows(
        lambda s: s.sum("agents", state="engine_unavailable") == 1 and s.sum("free_cores") == 127
    )
    idle.change_host(engine_available=True)
    await busy.stop()
    await system.shows(
        lambda s: (
            s.sum("agents", state="unreachable") == 1
            and s.sum("agents") == 3
            and s.sum("sessions", state="server_unreachable") == 1
            and s.sum("capacity_cores") == 128
        )
    )
    scrape = await system.scrape()
    assert scrape.sum("watch_breaks_total") >= 1
    assert scrape.sum("watch_snapshot_duration_seconds_count") >= 3


@pytest.mark.system(kind=Scraped, agents=2, application={})
async def test_an_overcommitted_host_takes_no_capacity_from_others(system: Scraped) -> None:
    await system.start(id="s")
    (busy,) = (agent for agent in system.agents if agent.live)
    await system.shows(lambda s: s.sum("free_cores") == 127)
    busy.host.capacity.Clear()
    busy.change_host()
    await system.shows(lambda s: s.sum("capacity_cores") == 64)
    scrape = await system.scrape()
    assert scrape.sum("free_cores") == 64
    assert scrape.sum("free_memory_bytes") == 64 * 1024**3


async def test_pulls_that_fail_are_counted(system: Scraped) -> None:
    system.agent.before_pull = refusing("REGISTRY_UNAVAILABLE")
    await system.enable("v2", pulled_by=())
    await system.shows(lambda s: s.sum("image_pulls", state="failed") == 1)
    scrape = await system.scrape()
    refused = {"method": "PullImage", "outcome": "registry_unavailable"}
    assert scrape.sum("agent_calls_total", **refused) >= 1


# ---- the program itself


async def test_the_database_is_measured(system: Scraped) -> None:
    before = await system.scrape()
    await system.start()
    await system.call("GET", "/session?all=true")
    scrape = await system.scrape()
    durations = [f"{name}_duration_seconds" for name in ("transaction", "commit", "read")]
    for name in (*durations, "commit_transactions"):
        count = f"database_{name}_count"
        assert scrape.sum(count) > before.sum(count), name
    for file in ("data", "wal"):
        assert scrape.sum("database_size_bytes", file=file) > 0
    await system.shows(lambda s: s.sum("database_waiting_transactions") == 0)


async def test_commits_that_fail_are_counted(system: Scraped) -> None:
    with pytest.raises(StoreError):
        await system.control_plane.store.run(lambda db: db.execute("ROLLBACK"))
    assert (await system.scrape()).sum("database_commit_failures_total") == 1


async def test_lag_of_the_event_loop_is_observed(system: Scraped) -> None:
    await system.shows(lambda s: s.sum("event_loop_lag_seconds_count") > 0)


# ---- names, labels and the page


async def test_the_page_has_every_metric_with_its_type_and_labels(system: Scraped) -> None:
    section = PAGE.partition("## Control plane")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(tiltyard_\w+)` \| (\w+) \|([^|]*)\| .+ \|$", section, re.MULTILINE)
    page = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    await system.call("PUT", "/warm-pool/game/local", json={"size": 1})
    await system.shows(lambda s: s.sum("standbys_ready") == 1)
    await system.start()
    reported = {}
    for family in (await system.scrape()).families.values():
        if not family.name.startswith(PROCESS):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            reported[name] = family.type, labels or page.get(name, ("", set()))[1]
    assert reported == page


async def test_10000_applications_stay_few_series(system: Scraped) -> None:
    await system.start(id="s")
    await system.shows(lambda s: s.sum("sessions", application="game") == 1)
    fleet = system.control_plane.fleet
    fleet.add(Agent("crowded", "unix:/nowhere", "local", "default"))
    crowded = fleet.host("crowded")
    assert crowded is not None
    sessions = tuple(
        replace(
            SESSION,
            internal_id=str(number),
            identity=Identity(f"a{number % 7}", "s", f"app-{number}", "v1", "local", {}),
        )
        for number in range(10_000)
    )
    crowded.state.apply(WatchMessage("life", 1, SessionsReported(sessions)), 0.0)
    try:
        scrape = await system.scrape()
        assert len(scrape.values("sessions", "application")) == MAX_NAMES + 1
        assert len(scrape.families[f"{PREFIX}sessions"].samples) == (MAX_NAMES + 1) * 6
        assert scrape.sum("sessions", account="alice", application="game") == 1
        assert scrape.sum("sessions", application=OTHER) == 10_000 - (MAX_NAMES - 1)
        assert scrape.sum("sessions") == 10_001
    finally:
        fleet.remove("crowded")
    assert len((await system.scrape()).families[f"{PREFIX}sessions"].samples) == 6


async def test_nothing_secret_and_no_session_is_shown(system: Scraped) -> None:
    await system.start(id="a-session-id", env={"KEY": "a-secret"})
    await system.call("GET", "/session/a-session-id")
    await system.call("GET", "/session?token=in-the-query", token="a-bad-token")
    text = (await system.scrape()).text
    secrets = ["a-session-id", "a-secret", "in-the-query", "a-bad-token", "127.0.0.1", "192.0.2."]
    for secret in (*secrets, *system.tokens.values(), system.operator_token, str(system.folder)):
        assert secret not in text
