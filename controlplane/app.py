"""The composition root: makes every part, starts them in order and stops them in reverse."""

import asyncio
import logging
from random import Random

from aiohttp import web

from controlplane.account_admin import AccountAdmin
from controlplane.accounts import Accounts, InitialTokens
from controlplane.all_sessions import AllSessions
from controlplane.api.edge import Edge, Limits
from controlplane.api.routes import make_web_app
from controlplane.api.services import Services
from controlplane.applications import Applications
from controlplane.clock import Clock
from controlplane.config import Config
from controlplane.delegation import Delegation
from controlplane.fleet.agents import Agents
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.fleet_admin import Declared, FleetAdmin
from controlplane.fleet.preload import Preloader
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
from controlplane.upkeep import Upkeep
from controlplane.warm_pools import WarmPools

_log = logging.getLogger(__name__)

HTTP_STOP_TIMEOUT = 15.0
"""Requests under way may finish: a DELETE takes 12 s at most."""

DEFAULT_ACCOUNT = "default"


class ControlPlane:
    """The whole program but for signals and the command line."""

    def __init__(
        self, config: Config, clock: Clock | None = None, limits: Limits | None = None
    ) -> None:
        """Make the parts; nothing is opened before `start`."""
        self._config = config
        self._edge = Edge(config, limits or Limits())
        self._clock = clock = clock or Clock()
        random = Random()  # noqa: S311  # chance between equals, no secret
        self._store = Store(config.database)
        self._sessions = SessionStore(self._store)
        self._fleet_store = FleetStore(self._store)
        applications_store = ApplicationStore(self._store)
        reports = ReportStore(self._store)
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
        self.fleet = Fleet(
            self._fleet_store,
            reports,
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
            clock=clock,
        )
        self._stops = sessions = Sessions(
            store=self._sessions,
            lists=SessionListStore(self._store),
            fleet=self.fleet,
            starts=self._starts,
            clock=clock,
        )
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
            agents=Agents(fleet_admin, self.fleet, self._preloader, declared.agents, clock),
        )
        self._runner: web.AppRunner | None = None
        self.base_url = ""
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
            return await self._accounts.initialise(names, new_operator_token=new_operator_token)
        finally:
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
        await self.fleet.load()
        await self._registry.start()

    async def _serve_http(self, stopping: asyncio.Event) -> None:
        # A handler is cancelled when its caller hangs up: a follower's stream must end with it.
        # Work that must go on, such as a start, is a task of its own.
        self._runner = web.AppRunner(
            make_web_app(self._services),
            handler_cancellation=True,
            shutdown_timeout=HTTP_STOP_TIMEOUT,
        )
        await self._runner.setup()
        assert self._runner.server is not None, "set up"
        self.base_url = await self._edge.open(self._runner.server)
        _log.info("listening on %s", self.base_url)
        self.listening.set()
        await stopping.wait()
        self._edge.close()
        await self._runner.cleanup()

    async def _close(self) -> None:
        self._edge.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.fleet.close()
        await self._registry.stop()
        self._logins.close()
        await self._store.close()
