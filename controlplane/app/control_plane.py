"""The composition root: creates the components, starts them in order and stops them."""

import asyncio
from random import Random

from controlplane.access.accounts import Accounts, InitialTokens
from controlplane.access.delegation import Delegation
from controlplane.access.open_streams import OpenStreams
from controlplane.admission.request_slots import RequestSlots
from controlplane.admission.stream_slots import StreamSlots
from controlplane.agent_rpc.dialling import Dialler
from controlplane.api import enrolling
from controlplane.api.operations.services import Services
from controlplane.api.routes import make_web_app
from controlplane.applications.applications import Applications
from controlplane.applications.locations import Locations
from controlplane.applications.tag_log import TagLog
from controlplane.applications.tags import Tags
from controlplane.applications.warm_pools import WarmPools
from controlplane.domain.access.start_rate import StartRate
from controlplane.domain.steps import STEPS
from controlplane.events.event_log import EventLog
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.fleet_log import FleetLog
from controlplane.fleet.host.reports import Reports
from controlplane.fleet.host_maker import HostMaker
from controlplane.fleet.pinger import Pinger
from controlplane.fleet.queue import HostQueue
from controlplane.fleet.renewal import Renewal
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.http.certificate import ServedCertificate
from controlplane.http.gate import Bounds
from controlplane.http.limits import Limits
from controlplane.http.listeners import Listeners
from controlplane.metrics.registry import Metrics
from controlplane.metrics_endpoint import listener as metrics_listener
from controlplane.metrics_endpoint.live import LiveCollector
from controlplane.operators.accounts import AccountAdmin
from controlplane.operators.agents import Agents
from controlplane.operators.enrolment import Enrolment
from controlplane.operators.fleet import FleetAdmin, declared_in
from controlplane.operators.placement import Explanations
from controlplane.operators.rotation import Rotation
from controlplane.pki.issuer import Issuer
from controlplane.pki.tickets import TicketKey
from controlplane.registries.client import RegistryClient
from controlplane.registries.logins import Logins
from controlplane.registries.vault import Vault
from controlplane.retention.surplus import Surplus
from controlplane.retention.upkeep import DAY, Upkeep
from controlplane.sessions.attempt import Attempts
from controlplane.sessions.claim import Claims
from controlplane.sessions.plans import Plans
from controlplane.sessions.sessions import Sessions
from controlplane.sessions.start import Starts
from controlplane.sessions.wait_ready import ReadyStarts
from controlplane.settings.model import Config
from controlplane.state_dir.event_mark import EventMark
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import enrolment
from controlplane.storage.tables.hosts.fleet import declare
from controlplane.storage.tables.sessions import lost_times, sessions
from controlplane.webhooks.service import WebhookService
from tiltyard.runtime.clock import Clock, SystemClock, is_trusted
from tiltyard.runtime.failpoints import failpoint
from tiltyard.runtime.logging.errors import errors_counted
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.metrics import loop_lag
from tiltyard.runtime.settings import host_and_port

log = get_logger(__name__)

DEFAULT_ACCOUNT = "default"


class ControlPlane:
    """The whole program except signals and the command line."""

    base_url = ""  # Address of the API, once `listening` is set
    enrol_url = ""  # Address of the enrolment listener, if enabled
    metrics_url = ""  # Address of the metrics listener, if enabled

    def __init__(
        self,
        config: Config,
        clock: Clock | None = None,
        limits: Limits | None = None,
        request_slots: RequestSlots | None = None,
    ) -> None:
        """Create the components; `serve` and `initialise` open them."""
        self._config = config
        self._metrics = metrics = Metrics()
        self._listeners = Listeners(limits or Limits(), metrics.http)
        clock = clock or SystemClock()
        self.clock = clock
        self.certificate = ServedCertificate(config, clock)
        random = Random()  # noqa: S311 - not a secret
        reach = failpoint(config.failpoint, STEPS)
        self.store = store = Store(config.database, metrics.store)
        self._event_mark = EventMark(store, config.state_dir / "newest-event", clock)
        self._ticket_key = TicketKey(config.state_dir / "ticket.key", self.clock)
        reports = Reports(
            store,
            read_ticket=self._ticket_key.read,
            keep_ended=config.ended_retention_days * DAY,
        )
        self._logins = Logins(store, Vault(config.state_dir / "registry.key"))
        self._registry = RegistryClient(
            self._logins.endpoint_of, clock, max_image_bytes=config.max_image_bytes
        )
        self._streams = OpenStreams(store, clock)
        self.event_log = EventLog(store, clock, metrics.events)
        self._webhooks = WebhookService(
            config,
            store=store,
            event_log=self.event_log,
            vault=self._logins.vault,
            clock=clock,
            random=random,
            metrics=metrics.webhooks,
        )
        self._accounts = Accounts(store, clock, metrics.http)
        self.upkeep = Upkeep(store, config, clock)
        self.surplus = Surplus(store, config, clock, metrics.store)
        self.issuer = Issuer(config.state_dir / "authority.pem", clock)
        dialler = Dialler(self.issuer, self._ticket_key, metrics.agent_calls)
        maker = HostMaker(
            store,
            reports,
            dial=dialler.client,
            login_for=self._logins.login_for,
            lost_after=config.lost_after,
            clock=clock,
            random=random,
            reach=reach,
            metrics=metrics.fleet,
        )
        self.fleet = Fleet(
            store,
            maker,
            unresponsive_after=config.unresponsive_after,
            unreachable_after=config.unreachable_after,
            host_network_pools=frozenset(config.host_network_pools),
            clock=clock,
            random=random,
        )
        self._event_writers = (
            FleetLog(store, self.fleet, clock),
            TagLog(store, self.fleet, clock),
        )
        self._standby_pools = StandbyPools(store, self.fleet, clock=clock, random=random)
        applications = Applications(store, self.fleet.node_pools.denied, clock)
        tags = Tags(
            store=store,
            fleet=self.fleet,
            resolver=self._registry,
            clock=clock,
            reach=reach,
        )
        queue = HostQueue(self.fleet, max_waiting=config.max_waiting_starts, clock=clock)
        claims = Claims(self.fleet, self._standby_pools)
        self.starts = Starts(
            plans=Plans(applications, tags, claims),
            store=store,
            fleet=self.fleet,
            attempts=Attempts(
                fleet=self.fleet,
                reports=reports,
                clock=clock,
                reach=reach,
                metrics=metrics.starts,
            ),
            queue=queue,
            start_timeout=config.start_timeout,
            rate=StartRate(config.start_rate, config.start_burst),
            claims=claims,
            reach=reach,
            clock=clock,
            metrics=metrics.starts,
        )
        self.sessions = Sessions(
            store=store,
            fleet=self.fleet,
            starts=self.starts,
            clock=clock,
            records_players=config.player_events_retention_days > 0,
            reach=reach,
        )
        self.ready_starts = ReadyStarts(
            starts=self.starts,
            store=store,
            sessions=self.sessions,
            fleet=self.fleet,
            clock=clock,
            metrics=metrics.starts,
        )
        self.enrolment = Enrolment(store, self.fleet, self.issuer, clock)
        self.renewal = Renewal(
            store,
            self.fleet,
            issuer=self.issuer,
            dialler=dialler,
            clock=clock,
            metrics=metrics.fleet,
            reach=reach,
        )
        declared = declared_in(config)
        self.services = Services(
            environment=config.environment,
            http=metrics.http,
            accounts=self._accounts,
            account_admin=AccountAdmin(store, clock),
            delegation=Delegation(store, clock, reach),
            streams=self._streams,
            event_log=self.event_log,
            event_slots=StreamSlots(config.max_event_streams, config.max_event_streams_per_token),
            event_metrics=metrics.events,
            applications=applications,
            tags=tags,
            warm_pools=WarmPools(store, self._standby_pools, clock),
            webhooks=self._webhooks.webhooks,
            locations=Locations(
                applications,
                self.fleet,
                self._standby_pools,
                patience=config.start_timeout,
                clock=clock,
            ),
            explanations=Explanations(store, tags, self.fleet),
            starts=self.starts,
            ready_starts=self.ready_starts,
            sessions=self.sessions,
            fleet=self.fleet,
            store=store,
            fleet_admin=FleetAdmin(
                store, self.fleet, logins=self._logins, declared=declared, clock=clock
            ),
            agents=Agents(
                store, self.fleet, standbys=self._standby_pools, declared=declared, clock=clock
            ),
            enrolment=self.enrolment,
            rotation=Rotation(
                store,
                self.fleet,
                issuer=self.issuer,
                dialler=dialler,
                renewal=self.renewal,
                clock=clock,
                reach=reach,
            ),
            request_slots=request_slots or RequestSlots(clock),
            bodies=self._listeners.bodies,
        )
        self._exposition = metrics_listener.Exposition(
            metrics,
            LiveCollector(
                fleet=self.fleet,
                queue=queue,
                pools=self._standby_pools,
                streams=self._streams,
                issuer=self.issuer,
                deliverer=self._webhooks.deliverer,
            ),
        )
        self.listening = asyncio.Event()  # Set once requests are answered at `base_url`

    async def initialise(
        self, names: tuple[str, ...], *, new_operator_token: bool = False
    ) -> InitialTokens:
        """Create the database, missing accounts, and an operator token if missing or requested."""
        await self.store.open()
        try:
            await self.issuer.open()
            await self._ticket_key.open()
            return await self._accounts.initialise(names, new_operator_token=new_operator_token)
        finally:
            await self.issuer.close()
            await self.store.close()

    async def serve(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set or a process-critical loop fails."""
        with errors_counted(self._metrics.internal_errors.inc):
            await self._serve(stopping)

    async def _serve(self, stopping: asyncio.Event) -> None:
        try:
            await self._open_store()
            if not is_trusted(self.clock):
                log.warning("clock not synchronised: removals, renewals and drain orders may wait")
            lag = self._metrics.loop_lag.observe
            interval = self._config.latency_interval
            pinger = Pinger(self.fleet, interval=interval, clock=self.clock)
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(self.fleet.run(), name="fleet"),
                    group.create_task(self._standby_pools.run(), name="standby pools"),
                    group.create_task(self.upkeep.run(), name="upkeep"),
                    group.create_task(self.surplus.run(), name="surplus"),
                    group.create_task(self._event_mark.run(), name="event mark"),
                    group.create_task(self._webhooks.run(), name="webhooks"),
                    group.create_task(self.renewal.run(), name="renewal"),
                    group.create_task(pinger.run(), name="pinger"),
                    group.create_task(self.certificate.run(), name="certificate"),
                    group.create_task(loop_lag.watch(lag), name="loop lag"),
                ]
                await self._serve_http(stopping)
                await self.starts.close()
                for loop in loops:
                    loop.cancel()
        finally:
            await self._close()

    async def _open_store(self) -> None:
        await self.store.open()
        await self._event_mark.open()
        await self.store.run(lost_times.begin)
        await self.store.run(
            declare,
            regions=self._config.regions,
            node_pools=self._config.node_pools,
            registries=await self._logins.seal_declared(self._config.registries),
            agents=[entry.agent for entry in self._config.agents],
        )
        await self.store.run(sessions.drop_unattempted, self.clock.time())
        await self.store.run_in_portions(enrolment.end_sessions_on_revoked, self.clock.time())
        await self.issuer.open(enrolled=await self.store.run(enrolment.enrolled))
        await self._ticket_key.open()
        await self.fleet.load()

    async def _serve_http(self, stopping: asyncio.Event) -> None:
        bounds = Bounds.of_api(self._config)
        await self._serve_metrics()
        await self._serve_enrolment()
        tls = await self.certificate.open()
        address = host_and_port(self._config.api_listen)
        app = make_web_app(self.services)
        self.base_url = await self._listeners.open(
            "api_listen", app, bounds, address=address, tls=tls
        )
        log.info("listening", address=self.base_url)
        self.listening.set()
        await stopping.wait()
        await self._listeners.close()

    async def _serve_metrics(self) -> None:
        if not self._config.metrics_listen:
            return
        address = host_and_port(self._config.metrics_listen)
        app = self._exposition.make_app()
        bounds = metrics_listener.BOUNDS
        self.metrics_url = await self._listeners.open(
            "metrics_listen", app, bounds, address=address
        )
        log.info("listening for scrapes", address=self.metrics_url)

    async def _serve_enrolment(self) -> None:
        if not self._config.enrol_listen:
            return
        address = host_and_port(self._config.enrol_listen)
        app = enrolling.make_enrolling_app(self.enrolment, self._metrics.http)
        tls = await self.issuer.listener_tls(enrolling.enrolling_tls())
        self.enrol_url = await self._listeners.open(
            "enrol_listen", app, enrolling.BOUNDS, address=address, tls=tls
        )
        log.info("listening for hosts to enrol", address=self.enrol_url)

    async def _close(self) -> None:
        await self._listeners.close()
        await self._streams.close()
        await self.event_log.close()
        await self._webhooks.close()
        await self.certificate.close()
        self._exposition.close()
        for writer in self._event_writers:
            await writer.close()
        await self.fleet.close()
        await self._registry.close()
        await self._logins.close()
        await self.issuer.close()
        await self._event_mark.close()
        await self.store.close()
