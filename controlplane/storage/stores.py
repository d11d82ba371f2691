"""Every store of one database, made once."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from controlplane.storage.account_admin_store import AccountAdminStore
from controlplane.storage.account_store import AccountStore
from controlplane.storage.application_store import ApplicationStore
from controlplane.storage.audit_store import AuditStore
from controlplane.storage.authority_store import AuthorityStore
from controlplane.storage.claim_store import ClaimStore, MakeTicket
from controlplane.storage.enrolment_store import EnrolmentStore
from controlplane.storage.fleet_admin_store import FleetAdminStore
from controlplane.storage.fleet_store import FleetStore
from controlplane.storage.host_store import HostStore
from controlplane.storage.player_store import PlayerStore
from controlplane.storage.report_store import ReportStore
from controlplane.storage.session_list_store import SessionListStore
from controlplane.storage.session_page_store import SessionPageStore
from controlplane.storage.session_store import SessionStore
from controlplane.storage.settling import IsOurs
from controlplane.storage.standby_order_store import StandbyOrderStore
from controlplane.storage.store import Store
from controlplane.storage.tag_store import TagStore
from controlplane.storage.token_store import TokenStore
from controlplane.storage.warm_pool_store import WarmPoolStore


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
    fleet_admin: FleetAdminStore
    hosts: HostStore
    players: PlayerStore
    reports: ReportStore
    session_lists: SessionListStore
    session_pages: SessionPageStore
    sessions: SessionStore
    standby_orders: StandbyOrderStore
    tags: TagStore
    tokens: TokenStore
    warm_pools: WarmPoolStore

    @classmethod
    def of(
        cls, store: Store, *, make_ticket: MakeTicket, is_ours: IsOurs, keep_ended: timedelta
    ) -> Self:
        """Make those of a database; `keep_ended` is how long an ended session is kept."""
        return cls(
            account_admin=AccountAdminStore(store),
            accounts=AccountStore(store),
            applications=ApplicationStore(store),
            audit=AuditStore(store),
            authorities=AuthorityStore(store),
            claims=ClaimStore(store, make_ticket),
            enrolments=EnrolmentStore(store),
            fleet=FleetStore(store),
            fleet_admin=FleetAdminStore(store),
            hosts=HostStore(store),
            players=PlayerStore(store),
            reports=ReportStore(store, is_ours=is_ours, keep_ended=keep_ended),
            session_lists=SessionListStore(store),
            session_pages=SessionPageStore(store),
            sessions=SessionStore(store),
            standby_orders=StandbyOrderStore(store),
            tags=TagStore(store),
            tokens=TokenStore(store),
            warm_pools=WarmPoolStore(store),
        )
