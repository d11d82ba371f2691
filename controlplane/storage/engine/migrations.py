"""The database's schema as numbered migrations. A released one is never edited."""

from sqlite_utils import Database

from controlplane.domain.errors import NewerStoreError
from controlplane.storage.engine.event_schema import EVENT_TABLES
from controlplane.storage.engine.webhook_schema import WEBHOOK_TABLES

_FIRST = """
-- A removed account is gone for every caller; its row goes last.
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;

-- The account is NULL for an operator's token. Revoking a token ends all that were made from it.
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    account TEXT REFERENCES account(name),
    name TEXT NOT NULL,
    secret_hash BLOB NOT NULL,
    scopes TEXT NOT NULL,
    parent TEXT REFERENCES token(id),
    created_ms INTEGER NOT NULL,
    expire_ms INTEGER,
    revoked_ms INTEGER,
    last_used_ms INTEGER,
    last_used_address TEXT
) STRICT;
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;

-- The password is sealed with a key that is not in the database.
CREATE TABLE registry (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    aliases TEXT NOT NULL,
    username TEXT NOT NULL DEFAULT '',
    sealed_password BLOB,
    auth_hosts TEXT NOT NULL DEFAULT '[]',
    private INTEGER NOT NULL DEFAULT 0,
    ca TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE region (name TEXT PRIMARY KEY) STRICT;

CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed',
    host_network INTEGER NOT NULL DEFAULT 0,
    capabilities TEXT NOT NULL DEFAULT '[]'
) STRICT;

CREATE TABLE application (
    account TEXT NOT NULL REFERENCES account(name),
    name TEXT NOT NULL,
    registry TEXT NOT NULL REFERENCES registry(name),
    repository TEXT NOT NULL,
    tag_keep INTEGER NOT NULL,
    network_mode TEXT NOT NULL,
    node_pool TEXT NOT NULL REFERENCES node_pool(name),
    regions TEXT NOT NULL,
    limits TEXT NOT NULL,
    reserved_nano_cpus INTEGER NOT NULL,
    reserved_memory_bytes INTEGER NOT NULL,
    reserved_gpus INTEGER NOT NULL,
    ports TEXT NOT NULL,
    disk_bytes INTEGER NOT NULL DEFAULT 0,
    pids INTEGER NOT NULL DEFAULT 0,
    shm_bytes INTEGER NOT NULL DEFAULT 0,
    stop_signal TEXT NOT NULL DEFAULT '',
    stop_grace INTEGER NOT NULL DEFAULT 0,
    capabilities TEXT NOT NULL DEFAULT '[]',
    image_init INTEGER NOT NULL DEFAULT 0,
    contiguous INTEGER NOT NULL DEFAULT 0,
    player_events INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;

-- Each of application.regions, to find applications by.
CREATE TABLE application_region (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    region TEXT NOT NULL REFERENCES region(name),
    PRIMARY KEY (account, application, region),
    FOREIGN KEY (account, application) REFERENCES application(account, name) ON DELETE CASCADE
) STRICT;
CREATE INDEX application_by_region ON application_region(region);

CREATE TABLE tag (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    image TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    platforms TEXT NOT NULL DEFAULT '',
    command TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL,
    PRIMARY KEY (account, application, name),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;

CREATE INDEX tag_by_image ON tag(image);

-- Images that have stood for tags: hosts are asked to remove those, and no other. The account is
-- empty once it is removed.
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
CREATE INDEX image_account ON image(account);

-- `revision` grows with every change. `is_full` is what the log of events has, NULL when changed.
CREATE TABLE warm_pool (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    location TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    env TEXT NOT NULL,
    args TEXT NOT NULL,
    labels TEXT NOT NULL,
    claim_signal TEXT NOT NULL DEFAULT '',
    is_full INTEGER,
    PRIMARY KEY (account, application, location),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;

-- A removed agent is in no region and no node pool: its row stays for the sessions that it had.
-- The last four columns are what the log of events has of its host. `Agent` describes the rest.
CREATE TABLE agent (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    region TEXT REFERENCES region(name),
    node_pool TEXT REFERENCES node_pool(name),
    removed_ms INTEGER,
    id TEXT,
    certificate_serial TEXT,
    certificate_expire_ms INTEGER,
    authority TEXT,
    trusts_former INTEGER NOT NULL DEFAULT 0,
    revoked_ms INTEGER,
    drain_revision INTEGER NOT NULL DEFAULT 0,
    draining INTEGER NOT NULL DEFAULT 0,
    drain_deadline_ms INTEGER,
    last_report_ms INTEGER,
    downtime_ms INTEGER NOT NULL DEFAULT 0,
    lost_ms INTEGER,
    written_incarnation TEXT NOT NULL DEFAULT '', written_sequence INTEGER NOT NULL DEFAULT 0,
    disk_full INTEGER NOT NULL DEFAULT 0,
    empty INTEGER NOT NULL DEFAULT 0,
    avoided_until_ms INTEGER,
    sessions_draining INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX agent_by_id ON agent(id) WHERE id IS NOT NULL;

-- Good for one host, once. One that names an agent is for that agent alone, which enrols again.
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;

-- From the moment that the id is taken until the session is forgotten; see `Session`.
-- `started_ms` is when the start began by the host's clock: of two sessions with one id the later
-- one stays. `adopted_ended` is 1 for one that had ended before this database knew of it.
-- `claim` is the claim of a standby as JSON, to repeat it, or else the lifetime; NULL once ended.
-- `failed_ms` is when its last failed run ended by the host's clock, `most_players` the highest
-- number of players since then; `earlier_players` has such pairs of the failed runs, as JSON.
-- `ready_ms` is when the ports of its newest run were all bound, by the host's clock.
-- `draining` is `Drain.mark` of the drain of its host that the log of events has.
CREATE TABLE session (
    number INTEGER PRIMARY KEY,
    account TEXT NOT NULL REFERENCES account(name),
    id TEXT NOT NULL,
    internal_id TEXT UNIQUE,
    agent TEXT REFERENCES agent(name),
    confirmed INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL,
    application TEXT NOT NULL,
    tag TEXT NOT NULL,
    location TEXT NOT NULL,
    host TEXT NOT NULL DEFAULT '',
    ports TEXT NOT NULL DEFAULT '[]',
    labels TEXT NOT NULL,
    external_id TEXT NOT NULL,
    traceparent TEXT NOT NULL DEFAULT '',
    injected_env TEXT NOT NULL DEFAULT '{}',
    claim TEXT,
    nano_cpus INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    player_count INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    stop_requested_ms INTEGER,
    ended_ms INTEGER,
    end_reason TEXT,
    exit_code INTEGER,
    detail TEXT NOT NULL DEFAULT '',
    adopted_ended INTEGER NOT NULL DEFAULT 0,
    failed_ms INTEGER,
    ready_ms INTEGER,
    draining INTEGER NOT NULL DEFAULT 0,
    most_players INTEGER NOT NULL DEFAULT 0,
    earlier_players TEXT NOT NULL DEFAULT '[]',
    UNIQUE (account, id)
) STRICT;
CREATE INDEX session_by_end ON session(ended_ms);
CREATE INDEX session_by_account ON session(account);
-- Of live sessions alone; with `ended_ms`, so that a query needs nothing but the index. The first
-- has what an account uses, which is summed up at every start that a quota bounds.
CREATE INDEX live_session_by_account
    ON session(account, ended_ms, number, nano_cpus, memory_bytes) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_tag ON session(account, tag, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_application ON session(account, application, ended_ms)
    WHERE ended_ms IS NULL;

-- Each label of each live session, as session.labels has them, to find sessions by.
CREATE TABLE live_label (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES session(number) ON DELETE CASCADE,
    PRIMARY KEY (account, name, value, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX live_label_by_session ON live_label(number);

CREATE TABLE player (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    session TEXT NOT NULL,
    player TEXT NOT NULL,
    joined_ms INTEGER NOT NULL DEFAULT 0,
    UNIQUE (account, session, player),
    FOREIGN KEY (account, session) REFERENCES session(account, id) ON DELETE CASCADE
) STRICT;
-- Players leave whatever sessions they are in.
CREATE INDEX player_by_id ON player(account, player);

-- What hosts must end, see `StopCause`. Once confirmed, only those without a row in `session`.
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
CREATE INDEX stop_order_by_agent ON stop_order(agent) WHERE confirmed_ms IS NULL;
CREATE INDEX stop_order_by_confirmation ON stop_order(confirmed_ms) WHERE confirmed_ms IS NOT NULL;

-- Sessions that were ordered from `begin_ms` to `end_ms` (null until the control plane serves) may
-- be on hosts and not in this database.
CREATE TABLE lost_time (
    begin_ms INTEGER NOT NULL,
    end_ms INTEGER
) STRICT;
INSERT INTO lost_time(begin_ms) VALUES (0);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST + EVENT_TABLES + WEBHOOK_TABLES,)


def migrate(db: Database, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Migrate the schema to the newest version, one transaction per step.

    Raises:
        NewerStoreError: A newer program has written this database.
    """
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise NewerStoreError(f"its schema {version} is newer than {len(migrations)}")
    for number, script in enumerate(migrations[version:], start=version + 1):
        db.conn.executescript(f"BEGIN IMMEDIATE;{script};PRAGMA user_version={number};COMMIT;")
