"""Every store of one database, made once."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import AccountAdminStore, AccountStore
from controlplane.storage.tables.applications import ApplicationStore
from controlplane.storage.tables.audit import AuditStore
from controlplane.storage.tables.claims import ClaimStore
from controlplane.storage.tables.enrolment import AuthorityStore, EnrolmentStore
from controlplane.storage.tables.fleet import FleetStore
from controlplane.storage.tables.hosts import HostStore
from controlplane.storage.tables.players import PlayerStore
from controlplane.storage.tables.registries import RegistryStore
from controlplane.storage.tables.reports import ReportStore
from controlplane.storage.tables.session_lists import SessionListStore, SessionPageStore
from controlplane.storage.tables.sessions import SessionStore
from controlplane.storage.tables.settling import IsOurs
from controlplane.storage.tables.standby_orders import StandbyOrderStore
from controlplane.storage.tables.tags import TagStore
from controlplane.storage.tables.tokens import TokenStore
from controlplane.storage.tables.warm_pools import WarmPoolStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores, which keep nothing but the database that they ask."""

    account_admin: AccountAdminStore
    accounts: AccountStore
    applications: ApplicationStore
    audit: AuditStore
    authorities: AuthorityStore
    claims: ClaimStore
    enrolments: EnrolmentStore
    fleet: FleetStore
    hosts: HostStore
    players: PlayerStore
    registries: RegistryStore
    reports: ReportStore
    session_lists: SessionListStore
    session_pages: SessionPageStore
    sessions: SessionStore
    standby_orders: StandbyOrderStore
    tags: TagStore
    tokens: TokenStore
    warm_pools: WarmPoolStore

    @classmethod
    def of(cls, store: Store, *, is_ours: IsOurs, keep_ended: timedelta) -> Self:
        """Make those of a database; `keep_ended` is how long an ended session is kept."""
        return cls(
            account_admin=AccountAdminStore(store),
            accounts=AccountStore(store),
            applications=ApplicationStore(store),
            audit=AuditStore(store),
            authorities=AuthorityStore(store),
            claims=ClaimStore(store),
            enrolments=EnrolmentStore(store),
            fleet=FleetStore(store),
            hosts=HostStore(store),
            players=PlayerStore(store),
            registries=RegistryStore(store),
            reports=ReportStore(store, is_ours=is_ours, keep_ended=keep_ended),
            session_lists=SessionListStore(store),
            session_pages=SessionPageStore(store),
            sessions=SessionStore(store),
            standby_orders=StandbyOrderStore(store),
            tags=TagStore(store),
            tokens=TokenStore(store),
            warm_pools=WarmPoolStore(store),
        )
