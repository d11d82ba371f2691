"""The database's schema, as numbered steps. A step that was released is never edited."""

from sqlite_utils import Database

from controlplane.errors import StoreError

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
