"""The database's schema, as numbered steps. A step that was released is never edited."""

from sqlite_utils import Database

from controlplane.domain.errors import StoreError

_FIRST = """
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
-- The account is NULL for an operator's token.
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
    last_used_ms INTEGER
) STRICT;
CREATE INDEX token_by_name ON token(account, name);
CREATE TABLE region (name TEXT PRIMARY KEY) STRICT;
CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed'
) STRICT;
CREATE TABLE registry (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    aliases TEXT NOT NULL
) STRICT;
CREATE TABLE agent (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    region TEXT NOT NULL REFERENCES region(name),
    node_pool TEXT NOT NULL REFERENCES node_pool(name)
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
    reservation TEXT NOT NULL,
    ports TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
CREATE TABLE tag (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    image TEXT NOT NULL,
    priority INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    PRIMARY KEY (account, application, name),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
-- From the moment its id is taken until it is forgotten. The agent is NULL before the first
-- attempt; `confirmed` is 0 until an agent has said that the attempt in internal_id runs.
CREATE TABLE session (
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
    injected_env TEXT NOT NULL DEFAULT '{}',
    nano_cpus INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    end_reason TEXT,
    exit_code INTEGER,
    detail TEXT NOT NULL DEFAULT '',
    stop_requested_ms INTEGER,
    PRIMARY KEY (account, id)
) STRICT;
CREATE INDEX live_session_by_account ON session(account) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent) WHERE ended_ms IS NULL;
CREATE INDEX session_by_end ON session(ended_ms) WHERE ended_ms IS NOT NULL;
-- Attempts whose end was unknown when another was made: whatever came of them is stopped.
CREATE TABLE abandoned (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
CREATE INDEX abandoned_by_agent ON abandoned(agent) WHERE stopped_ms IS NULL;
CREATE TABLE player (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    session TEXT NOT NULL,
    player TEXT NOT NULL,
    UNIQUE (account, session, player),
    FOREIGN KEY (account, session) REFERENCES session(account, id) ON DELETE CASCADE
) STRICT;
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
"""

_LOOKUPS = """
-- Revoking a token ends all that were made from it.
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
-- Players leave wherever they are joined.
CREATE INDEX player_by_id ON player(account, player);
"""

_AUDIT = """
-- Where the request came from; empty for what the product did by itself.
ALTER TABLE event ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN last_used_address TEXT;
"""

_OPERATORS = """
-- A page of the audit, newest first, by each thing that it can be asked for.
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_actor ON event(actor);
CREATE INDEX event_by_object ON event(object);
CREATE INDEX event_by_kind ON event(kind);
CREATE INDEX event_by_topic ON event(substr(kind, 1, instr(kind || '.', '.') - 1));
-- All keys are NULL, so that the order is that of the rows: a page of live sessions, newest first.
CREATE INDEX live_session ON session(ended_ms) WHERE ended_ms IS NULL;
"""

_REMOVED_AGENTS = """
-- A removed agent is in no region and no node pool; its row stays for the sessions that it had.
ALTER TABLE agent ADD COLUMN removed_ms INTEGER;
ALTER TABLE agent ADD COLUMN new_region TEXT REFERENCES region(name);
ALTER TABLE agent ADD COLUMN new_node_pool TEXT REFERENCES node_pool(name);
UPDATE agent SET new_region = region, new_node_pool = node_pool;
ALTER TABLE agent DROP COLUMN region;
ALTER TABLE agent DROP COLUMN node_pool;
ALTER TABLE agent RENAME COLUMN new_region TO region;
ALTER TABLE agent RENAME COLUMN new_node_pool TO node_pool;
"""

_LISTS = """
-- Lists show and filter it for every row.
ALTER TABLE session ADD COLUMN player_count INTEGER NOT NULL DEFAULT 0;
UPDATE session SET player_count = (SELECT count(*) FROM player
    WHERE player.account = session.account AND player.session = session.id);
-- What an account holds is summed up at every start that a quota bounds.
CREATE INDEX live_usage ON session(account, nano_cpus, memory_bytes, id) WHERE ended_ms IS NULL;
"""

_WARM_POOLS = """
-- What an account wants kept ready. `id` is what hosts know a pool by; `revision` grows with every
-- change of it.
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
    PRIMARY KEY (account, application, location),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
"""

_BOUNDS = """
-- An account that is gone for everybody; what was its own is removed a portion after the other.
ALTER TABLE account ADD COLUMN removed_ms INTEGER;
-- What is old is found by its time, however much there is that is young.
CREATE INDEX event_by_time ON event(time_ms);
CREATE INDEX abandoned_by_stop ON abandoned(stopped_ms) WHERE stopped_ms IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
-- The good tokens of an account are counted when one is made.
CREATE INDEX unrevoked_token ON token(account, expire_ms) WHERE revoked_ms IS NULL;
"""

_PORTIONS = """
-- Lists go through an account's rows in the order of their numbers. By an expression, so that no
-- query of live sessions takes it in place of an index that holds those alone.
CREATE INDEX session_by_account ON session(account || '');
"""

_IMAGES = """
-- Every image that ever stood for a tag: hosts are asked to remove those, and no other.
CREATE TABLE image (reference TEXT PRIMARY KEY) STRICT;
INSERT OR IGNORE INTO image(reference) SELECT image FROM tag;
"""

_REGISTRY_LOGINS = """
-- The password is sealed with a key that is not in the database; NULL where there is no name.
ALTER TABLE registry ADD COLUMN username TEXT NOT NULL DEFAULT '';
ALTER TABLE registry ADD COLUMN sealed_password BLOB;
ALTER TABLE registry ADD COLUMN auth_hosts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE registry ADD COLUMN private INTEGER NOT NULL DEFAULT 0;
ALTER TABLE registry ADD COLUMN ca TEXT NOT NULL DEFAULT '';
"""

_ENROLMENT = """
-- An enrolled agent has an id, which its certificate names, and none when the settings declare it.
-- A revoked one stays until it is removed.
ALTER TABLE agent ADD COLUMN id TEXT;
ALTER TABLE agent ADD COLUMN certificate_serial TEXT;
ALTER TABLE agent ADD COLUMN certificate_expire_ms INTEGER;
ALTER TABLE agent ADD COLUMN revoked_ms INTEGER;
CREATE UNIQUE INDEX agent_by_id ON agent(id) WHERE id IS NOT NULL;
-- Good for one host, once. With an agent it is for that one alone, which enrols again.
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
"""

_SETTLING = """
-- When the start of the session began, by its host's clock: of two sessions with one id the later
-- one stays. `adopted_ended`: it was over before this database knew of it.
ALTER TABLE session ADD COLUMN started_ms INTEGER;
ALTER TABLE session ADD COLUMN adopted_ended INTEGER NOT NULL DEFAULT 0;
"""

_HOSTS = """
-- The newest order to drain a host: its revision grows with every one, and the host keeps it, too.
ALTER TABLE agent ADD COLUMN drain_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN drain_deadline_ms INTEGER;
-- `heard_ms` is exact to a minute. `silent_ms` is for how long it was silent since, while a
-- control plane listened; `lost_ms` when its sessions were given up for that.
ALTER TABLE agent ADD COLUMN heard_ms INTEGER;
ALTER TABLE agent ADD COLUMN silent_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN lost_ms INTEGER;
"""

_STANDBYS = """
-- A claimed standby's session has the caller's id, and the standby's as an alias. `claim` is what
-- was asked of the host, as JSON, should it have to be asked again; NULL for a cold start.
ALTER TABLE session ADD COLUMN alias TEXT;
ALTER TABLE session ADD COLUMN claim TEXT;
CREATE INDEX session_by_alias ON session(account, alias) WHERE alias IS NOT NULL;
ALTER TABLE warm_pool ADD COLUMN claim_signal TEXT NOT NULL DEFAULT '';
-- What each host was told to keep of a pool, also of one that is gone, until the host has heard
-- that. `revision` grows with every order to the host; `spec` tells what a standby runs apart.
CREATE TABLE standby_order (
    pool TEXT NOT NULL,
    agent TEXT NOT NULL,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    spec TEXT NOT NULL,
    PRIMARY KEY (pool, agent)
) STRICT;
"""

_AUTHORITIES = """
-- The fingerprint of the authority that signed the certificate: NULL as long as there was but one.
-- `trusts_former`: the host was told to trust the one before as well, and is still to drop it.
ALTER TABLE agent ADD COLUMN authority TEXT;
ALTER TABLE agent ADD COLUMN trusts_former INTEGER NOT NULL DEFAULT 0;
"""

_FILTERS = """
-- Lists by these look at their own rows alone. By an expression, as session_by_account.
CREATE INDEX live_session_by_application ON session(account || '', application)
    WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_tag ON session(account || '', tag) WHERE ended_ms IS NULL;
-- Each label of each live session, as session.labels has them: only the triggers write it. What
-- a host makes up, such as names that differ after a NUL alone, must not fail the writing of its
-- row.
CREATE TABLE live_label (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (account, name, value, session)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO live_label SELECT account, key, value, session.id
    FROM session, json_each(session.labels) WHERE ended_ms IS NULL;
CREATE TRIGGER session_labelled AFTER INSERT ON session WHEN new.ended_ms IS NULL
BEGIN
    INSERT OR IGNORE INTO live_label
        SELECT new.account, key, value, new.id FROM json_each(new.labels);
END;
CREATE TRIGGER session_relabelled AFTER UPDATE OF id, labels, ended_ms ON session
WHEN (new.id, new.labels, new.ended_ms IS NULL) IS NOT (old.id, old.labels, old.ended_ms IS NULL)
BEGIN
    DELETE FROM live_label WHERE (account, name, value, session) IN
        (SELECT old.account, key, value, old.id FROM json_each(old.labels));
    INSERT OR IGNORE INTO live_label SELECT new.account, key, value, new.id
        FROM json_each(new.labels) WHERE new.ended_ms IS NULL;
END;
CREATE TRIGGER session_unlabelled AFTER DELETE ON session
BEGIN
    DELETE FROM live_label WHERE (account, name, value, session) IN
        (SELECT old.account, key, value, old.id FROM json_each(old.labels));
END;
"""

_HOST_NETWORK = """
ALTER TABLE node_pool ADD COLUMN host_network INTEGER NOT NULL DEFAULT 0;
"""

_DISK_LIMITS = """
ALTER TABLE application ADD COLUMN disk_bytes INTEGER NOT NULL DEFAULT 0;
"""

MIGRATIONS: tuple[str, ...] = (
    _FIRST,
    _LOOKUPS,
    _AUDIT,
    _OPERATORS,
    _REMOVED_AGENTS,
    _LISTS,
    _WARM_POOLS,
    _BOUNDS,
    _PORTIONS,
    _IMAGES,
    _REGISTRY_LOGINS,
    _ENROLMENT,
    _SETTLING,
    _HOSTS,
    _STANDBYS,
    _AUTHORITIES,
    _FILTERS,
    _HOST_NETWORK,
    _DISK_LIMITS,
)


def migrate(db: Database, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the schema to the newest number, each step in a transaction of its own.

    Raises:
        StoreError: A newer program has written this database.
    """
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise StoreError(f"cannot use the database: because its schema {version} is newer")
    for number, script in enumerate(migrations[version:], start=version + 1):
        db.conn.executescript(f"BEGIN IMMEDIATE;{script};PRAGMA user_version={number};COMMIT;")
