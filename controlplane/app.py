"""The composition root: makes every part, starts them in order and stops them in reverse."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from random import Random

from controlplane.account_admin import AccountAdmin
from controlplane.accounts import Accounts, InitialTokens
from controlplane.all_sessions import AllSessions
from controlplane.api.edge import Limits
from controlplane.api.enrolling import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    enrolling_tls,
    make_enrolling_app,
)
from controlplane.api.gate import Gate, allow_files
from controlplane.api.routes import make_web_app
from controlplane.api.services import Services
from controlplane.api.serving import HttpServer
from controlplane.applications import Applications
from controlplane.clock import Clock
from controlplane.config import Config
from controlplane.delegation import Delegation
from controlplane.enrolment import Enrolment
from controlplane.failpoints import failpoint
from controlplane.fleet.agents import Agents
from controlplane.fleet.dialling import Dialler
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.fleet_admin import Declared, FleetAdmin
from controlplane.fleet.preload import Preloader
from controlplane.fleet.renewal import Renewal
from controlplane.issuer import Issuer
from controlplane.locations import Locations
from controlplane.open_streams import OpenStreams
from controlplane.players import Players
from controlplane.registries.client import RegistryClient
from controlplane.registries.logins import Logins
from controlplane.registries.vault import Vault
from controlplane.sessions import Sessions
from controlplane.start_rate import StartRate
from controlplane.starts import Starts
from controlplane.storage.account_admin_store import AccountAdminStore
from controlplane.storage.account_store import AccountStore
from controlplane.storage.application_store import ApplicationStore
from controlplane.storage.audit_store import AuditStore
from controlplane.storage.enrolment_store import EnrolmentStore
from controlplane.storage.fleet_admin_store import FleetAdminStore
from controlplane.storage.fleet_store import FleetStore
from controlplane.storage.player_store import PlayerStore
from controlplane.storage.report_store import ReportStore
from controlplane.storage.session_list_store import SessionListStore
from controlplane.storage.session_page_store import SessionPageStore
from controlplane.storage.session_store import SessionStore
from controlplane.storage.store import Store
from controlplane.storage.tag_store import TagStore
from controlplane.storage.token_store import TokenStore
from controlplane.storage.warm_pool_store import WarmPoolStore
from controlplane.tags import Tags
from controlplane.ticket_key import TicketKey
from controlplane.upkeep import Upkeep
from controlplane.warm_pools import WarmPools

_log = logging.getLogger(__name__)

DEFAULT_ACCOUNT = "default"


class ControlPlane:
    """The whole program but for signals and the command line."""

    def __init__(
        self, config: Config, clock: Clock | None = None, limits: Limits | None = None
    ) -> None:
        """Make the parts; nothing is opened before `start`."""
        self._config = config
        self._limits = limits or Limits()
        self._gate = Gate(config)
        self._clock = clock = clock or Clock()
        random = Random()  # noqa: S311  # chance between equals, no secret
        self._store = Store(config.database)
        self._sessions = SessionStore(self._store)
        self._fleet_store = FleetStore(self._store)
        applications_store = ApplicationStore(self._store)
        self._ticket_key = TicketKey(config.state_dir / "ticket.key")
        reports = ReportStore(
            self._store,
            is_ours=self._ticket_key.is_ours,
            keep_ended=timedelta(days=config.ended_retention_days),
        )
        vault = Vault(config.state_dir / "registry.key")
        self._logins = Logins(self._fleet_store, vault)
        self._registry = RegistryClient(
            self._logins.endpoint_of, max_image_bytes=config.max_image_bytes
        )
        accounts_store, tokens = AccountStore(self._store), TokenStore(self._store)
        audit, account_admin = AuditStore(self._store), AccountAdminStore(self._store)
        streams = OpenStreams(accounts_store, clock)
        self._accounts = Accounts(accounts_store, clock)
        self._upkeep = Upkeep(
            sessions=self._sessions,
            tokens=tokens,
            audit=audit,
            accounts=account_admin,
            config=config,
            clock=clock,
        )
        self._issuer = Issuer(config.state_dir / "authority.pem", clock)
        dialler = Dialler(self._issuer)
        self.fleet = Fleet(
            self._fleet_store,
            reports,
            dial=dialler.client,
            placement_silence=config.placement_silence,
            unreachable_after=config.unreachable_after,
            clock=clock,
            random=random,
        )
        tag_store = TagStore(self._store)
        self._preloader = Preloader(
            tag_store, self.fleet, login_for=self._logins.login_for, clock=clock, random=random
        )
        applications = Applications(applications_store, self._fleet_store, self._preloader, clock)
        tags = Tags(
            applications=applications,
            store=tag_store,
            fleet_store=self._fleet_store,
            fleet=self.fleet,
            preloader=self._preloader,
            resolver=self._registry,
            clock=clock,
        )
        self._starts = Starts(
            applications=applications,
            tags=tags,
            sessions=self._sessions,
            reports=reports,
            fleet=self.fleet,
            start_timeout=config.start_timeout,
            rate=StartRate(config.start_rate, config.start_burst),
            ticket_key=self._ticket_key,
            reach=failpoint(config.failpoint),
            clock=clock,
        )
        self._stops = sessions = Sessions(
            store=self._sessions,
            lists=SessionListStore(self._store),
            fleet=self.fleet,
            starts=self._starts,
            clock=clock,
        )
        self._enrolments = EnrolmentStore(self._store)
        self._enrolment = Enrolment(self._enrolments, self.fleet, self._issuer, clock)
        self.renewal = Renewal(self._enrolments, self.fleet, self._issuer, dialler, clock)
        declared, fleet_admin = Declared.in_config(config), FleetAdminStore(self._store)
        self._services = Services(
            environment=config.environment,
            accounts=self._accounts,
            account_admin=AccountAdmin(account_admin, streams, clock),
            delegation=Delegation(tokens, streams, clock),
            streams=streams,
            audit=audit,
            applications=applications,
            tags=tags,
            warm_pools=WarmPools(WarmPoolStore(self._store), clock),
            locations=Locations(applications, tag_store, self.fleet),
            starts=self._starts,
            sessions=sessions,
            all_sessions=AllSessions(SessionPageStore(self._store), sessions),
            players=Players(PlayerStore(self._store), clock),
            fleet=self.fleet,
            fleet_store=self._fleet_store,
            fleet_admin=FleetAdmin(fleet_admin, self.fleet, self._logins, declared, clock),
            agents=Agents(
                fleet_admin,
                self._enrolments,
                self.fleet,
                self._preloader,
                declared=declared.agents,
                clock=clock,
            ),
            enrolment=self._enrolment,
        )
        self._servers: list[HttpServer] = []
        self.base_url = ""
        self.enrol_url = ""
        self.listening = asyncio.Event()
        """Set once requests are answered at `base_url`."""

    async def initialise(
        self, names: tuple[str, ...], *, new_operator_token: bool = False
    ) -> InitialTokens:
        """Make the database, and the accounts and the operator's token that it lacks.

        `new_operator_token` makes an operator's token in any case.
        """
        await self._store.open()
        try:
            await self._issuer.open()
            await self._ticket_key.open()
            return await self._accounts.initialise(names, new_operator_token=new_operator_token)
        finally:
            self._issuer.close()
            await self._store.close()

    async def initialise_with(self, tokens: InitialTokens) -> bool:
        """Make the database with these tokens; False when it has others."""
        await self._store.open()
        try:
            return await self._accounts.initialise_with(tokens)
        finally:
            await self._store.close()

    async def serve(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set or a process-critical loop fails."""
        try:
            await self._open_store()
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(self.fleet.run(), name="fleet"),
                    group.create_task(self._preloader.run(), name="preloader"),
                    group.create_task(self._upkeep.run(), name="upkeep"),
                    group.create_task(self.renewal.run(), name="renewal"),
                ]
                await self._serve_http(stopping)
                await self._starts.close()
                await self._stops.close()
                for loop in loops:
                    loop.cancel()
        finally:
            await self._close()

    async def _open_store(self) -> None:
        await self._store.open()
        sealed = await self._logins.start(self._config.registries)
        await self._fleet_store.declare(self._config, sealed)
        await self._sessions.drop_unattempted()
        await self._enrolments.drop_starts_on_revoked(self._clock.now_ms())
        await self._issuer.open(enrolled=await self._enrolments.enrolled())
        await self._ticket_key.open()
        await self.fleet.load()
        await self._registry.start()

    async def _serve_http(self, stopping: asyncio.Event) -> None:
        allow_files(self._config.max_connections + MAX_CONNECTIONS)
        await self._serve_enrolment()
        server = HttpServer(make_web_app(self._services), self._gate, self._limits)
        self._servers.append(server)
        tls = self._config.tls_context()
        self.base_url = await server.open(self._config.listen_address(), tls)
        _log.info("listening on %s", self.base_url)
        self.listening.set()
        await stopping.wait()
        await self._close_servers()

    async def _serve_enrolment(self) -> None:
        address = self._config.enrol_address()
        if address is None:
            return
        bounds = replace(
            self._config,
            behind_proxy=(),
            max_connections=MAX_CONNECTIONS,
            max_connections_per_address=MAX_CONNECTIONS_PER_ADDRESS,
        )
        server = HttpServer(make_enrolling_app(self._enrolment), Gate(bounds), self._limits)
        self._servers.append(server)
        tls = await self._issuer.listener_tls(enrolling_tls())
        self.enrol_url = await server.open(address, tls)
        _log.info("hosts are enrolled at %s", self.enrol_url)

    async def _close_servers(self) -> None:
        while self._servers:
            await self._servers.pop().close()

    async def _close(self) -> None:
        await self._close_servers()
        await self.fleet.close()
        await self._registry.stop()
        self._logins.close()
        self._issuer.close()
        await self._store.close()
