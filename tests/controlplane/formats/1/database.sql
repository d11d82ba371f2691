BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795997673339,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795997673339,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795997673568,NULL,9,NULL,NULL);
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
    written_incarnation TEXT NOT NULL DEFAULT '', written_sequence INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpuph8qiqu/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795997673536,0,NULL,'74a16c5b-46c7-48c3-b5df-b352463c2a0f',0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'401fc67a-2787-4127-a22a-733794e691d8','3d2126655c59cc1a0d81ba3b2336ea8bcf87f631',1798589675000,'d739636708bc7ee89bb5cbcd4b473583da2ed413c23ebbe39e94e117e3b07907',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'54a65147-ba29-40d5-8c1d-4808dbb9fdde','bd4b0ed23febd4161602fd2374de44d961f6618',1798589676000,'d739636708bc7ee89bb5cbcd4b473583da2ed413c23ebbe39e94e117e3b07907',0,1795997676062,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795997676072,NULL,NULL,NULL,'d739636708bc7ee89bb5cbcd4b473583da2ed413c23ebbe39e94e117e3b07907',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
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
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1795997673615);
CREATE TABLE application_region (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    region TEXT NOT NULL REFERENCES region(name),
    PRIMARY KEY (account, application, region),
    FOREIGN KEY (account, application) REFERENCES application(account, name) ON DELETE CASCADE
) STRICT;
INSERT INTO "application_region" VALUES('alice','game','local');
INSERT INTO "application_region" VALUES('alice','game','elsewhere');
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('bf31502bb566d6b9',X'EC43EE79E8117EBC2F3319EE8816743E216BE29994B5F773A5B182E43747AFE1','local','default',NULL,1795998575971,1795997675989);
INSERT INTO "enrolment_token" VALUES('3877382fb7597bd3',X'7549F0D5464B3BF9D57DE49954548E768A24E290CB1DC2A6AF1774A7A247B581','local','default',NULL,1795998576015,1795997676020);
INSERT INTO "enrolment_token" VALUES('dce03fa6e76a3d31',X'D2ADB7F85FABA9792E4A5D69C7C9A8D8296409FA6356A397192823B6E6ECDD91','local','default',NULL,1795998576038,1795997676044);
INSERT INTO "enrolment_token" VALUES('e76bca720e75b879',X'A616BE2864C5E1A1EFF3F97B30F33909038C5EB9E5A81F78111137259921638D','local','default',NULL,1795998576079,NULL);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,1795997673339,'account.created',1,'alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795997673339,'token.created',1,'alice','init','','6732656167ba8f18','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795997673339,'account.created',1,'bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795997673339,'token.created',1,'bob','init','','cc7e57525ce8d2b7','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795997673339,'token.created',1,'','init','','517c8d9e00120b43','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795997673554,'region.created',1,'','517c8d9e00120b43','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795997673557,'node_pool.set',1,'','517c8d9e00120b43','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1795997673564,'registry.set',1,'','517c8d9e00120b43','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795997673568,'account.created',1,'carol','517c8d9e00120b43','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795997673568,'token.created',1,'carol','517c8d9e00120b43','127.0.0.1','0bf76ce500d1a088','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795997673574,'account.created',1,'dora','517c8d9e00120b43','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795997673574,'token.created',1,'dora','517c8d9e00120b43','127.0.0.1','472709826c7f9745','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795997673583,'account.changed',1,'alice','517c8d9e00120b43','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795997673592,'account.removed',1,'dora','517c8d9e00120b43','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795997673615,'application.created',1,'alice','6732656167ba8f18','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795997673624,'tag.enabled',1,'alice','6732656167ba8f18','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795997673642,'tag.enabled',1,'alice','6732656167ba8f18','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795997673653,'token.created',1,'alice','6732656167ba8f18','127.0.0.1','12c5244acccf8ea8','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827533673653}');
INSERT INTO "event" VALUES(19,1795997673656,'token.created',1,'alice','6732656167ba8f18','127.0.0.1','aa2a35e962ef79af','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795997673659,'token.revoked',1,'alice','517c8d9e00120b43','127.0.0.1','aa2a35e962ef79af','{"with": "aa2a35e962ef79af"}');
INSERT INTO "event" VALUES(21,1795997673670,'session.reserved',1,'alice','6732656167ba8f18','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795997673689,'session.reserved',1,'alice','6732656167ba8f18','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795997673720,'session.reserved',1,'alice','6732656167ba8f18','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795997673745,'session.stop',1,'alice','6732656167ba8f18','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795997673759,'session.ended',1,'alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795997673807,'session.ended',1,'alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795997673874,'session.reserved',1,'alice','6732656167ba8f18','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795997675965,'session.not_started',1,'alice','controlplane','','unknown','{"why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(29,1795997675971,'agent.token_created',1,'','517c8d9e00120b43','127.0.0.1','bf31502bb566d6b9','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795997675989,'agent.enrolled',1,'','bf31502bb566d6b9','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "3d2126655c59cc1a0d81ba3b2336ea8bcf87f631"}');
INSERT INTO "event" VALUES(31,1795997676015,'agent.token_created',1,'','517c8d9e00120b43','127.0.0.1','3877382fb7597bd3','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795997676020,'agent.enrolled',1,'','3877382fb7597bd3','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "bd4b0ed23febd4161602fd2374de44d961f6618"}');
INSERT INTO "event" VALUES(33,1795997676038,'agent.token_created',1,'','517c8d9e00120b43','127.0.0.1','dce03fa6e76a3d31','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795997676044,'agent.enrolled',1,'','dce03fa6e76a3d31','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "57b3460f1335abe122955b287601b6874a6cf60f"}');
INSERT INTO "event" VALUES(35,1795997676062,'agent.revoked',1,'','517c8d9e00120b43','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795997676072,'agent.removed',1,'','517c8d9e00120b43','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795997676079,'agent.token_created',1,'','517c8d9e00120b43','127.0.0.1','e76bca720e75b879','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795997676086,'warm_pool.set',1,'alice','6732656167ba8f18','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE event_counter (
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL
) STRICT;
INSERT INTO "event_counter" VALUES(1,38);
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:38243/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:38243/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
CREATE TABLE live_label (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES session(number) ON DELETE CASCADE,
    PRIMARY KEY (account, name, value, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "live_label" VALUES('alice','mode','duel',1);
CREATE TABLE lost_time (
    begin_ms INTEGER NOT NULL,
    end_ms INTEGER
) STRICT;
INSERT INTO "lost_time" VALUES(0,1795997673384);
CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed',
    host_network INTEGER NOT NULL DEFAULT 0,
    capabilities TEXT NOT NULL DEFAULT '[]'
) STRICT;
INSERT INTO "node_pool" VALUES('default','packed',0,'[]');
INSERT INTO "node_pool" VALUES('big','packed',0,'[]');
INSERT INTO "node_pool" VALUES('spread','spread',0,'[]');
CREATE TABLE player (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    session TEXT NOT NULL,
    player TEXT NOT NULL,
    joined_ms INTEGER NOT NULL DEFAULT 0,
    UNIQUE (account, session, player),
    FOREIGN KEY (account, session) REFERENCES session(account, id) ON DELETE CASCADE
) STRICT;
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1795997673737);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1795997673737);
CREATE TABLE region (name TEXT PRIMARY KEY) STRICT;
INSERT INTO "region" VALUES('local');
INSERT INTO "region" VALUES('elsewhere');
INSERT INTO "region" VALUES('third');
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
INSERT INTO "registry" VALUES('local','127.0.0.1:38243','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272444C5F70767158354E6E7936326F426C466D59486864396D5742776B396F68617A4B7669356564634774447956794F4953594A726D4D654D73352D4F5274304C6C397442733832446F4B6F61334669634E5143447251736B6E734C6A726F4A5A435176703862455F5F665559414B6B3D','[]',1,'');
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
    most_players INTEGER NOT NULL DEFAULT 0,
    earlier_players TEXT NOT NULL DEFAULT '[]',
    UNIQUE (account, id)
) STRICT;
INSERT INTO "session" VALUES(1,'alice','match ü','ccc32c5c-a1bb-42c1-b7b0-8072f561ca4d','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1795997673670,1795997673675,NULL,NULL,NULL,NULL,'',0,NULL,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','966029c6-a030-4026-b1b4-60da7d23296f','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795997673689,1795997673696,1795997673745,1795997673759,'stopped',0,'',0,NULL,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','6db60db3-a780-4a66-afa7-5816a226aa14','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795997673720,1795997673732,NULL,1795997673776,'exited',0,'',0,NULL,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('3f61e75a-8e32-4af1-aa9f-df75614d93e3','a0','unanswered',1795997675945,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:38243/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:38243/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('6732656167ba8f18','alice','initial',X'677F4DCB6393F180751D340527624134BE38BC1FEC577332E759BFDD8DEE464E','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795997673339,NULL,NULL,1795997673608,'127.0.0.1');
INSERT INTO "token" VALUES('cc7e57525ce8d2b7','bob','initial',X'1BBECDF51535DE7C71A1BE0263FA943F0B91D5C17E38F456C45D6B44D1724100','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795997673339,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('517c8d9e00120b43',NULL,'initial',X'43E805055C0C8DC1CDBABA639E0BF318C243D575EA564C818E648810BCE663C2','["operator:read", "operator:write"]',NULL,1795997673339,NULL,NULL,1795997673553,'127.0.0.1');
INSERT INTO "token" VALUES('0bf76ce500d1a088','carol','initial',X'A1DCEF6172E06F288FE595B1C134A9D158C4C999E879EEA8EC963E27C8144611','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795997673568,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('12c5244acccf8ea8','alice','reader',X'FADEEA6197D4935187F78427BBF7E63FD93BCF28A46E5407C88369E4142A6CC9','["session:read"]','6732656167ba8f18',1795997673653,1827533673653,NULL,NULL,NULL);
INSERT INTO "token" VALUES('aa2a35e962ef79af','alice','gone',X'79D0B033C3D6F96059AD513A7C25897D5247CF1A609C46F56E7CEEC8F5B493DE','["session:read"]','6732656167ba8f18',1795997673656,NULL,1795997673659,NULL,NULL);
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
    PRIMARY KEY (account, application, location),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
INSERT INTO "warm_pool" VALUES('alice','game','local','2ef07188-83e8-4d2c-8a82-73239b1d3286',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX application_by_region ON application_region(region);
CREATE INDEX image_account ON image(account);
CREATE UNIQUE INDEX agent_by_id ON agent(id) WHERE id IS NOT NULL;
CREATE INDEX session_by_end ON session(ended_ms);
CREATE INDEX session_by_account ON session(account);
CREATE INDEX live_session_by_account
    ON session(account, ended_ms, number, nano_cpus, memory_bytes) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_tag ON session(account, tag, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_application ON session(account, application, ended_ms)
    WHERE ended_ms IS NULL;
CREATE INDEX live_label_by_session ON live_label(number);
CREATE INDEX player_by_id ON player(account, player);
CREATE INDEX stop_order_by_agent ON stop_order(agent) WHERE confirmed_ms IS NULL;
CREATE INDEX stop_order_by_confirmation ON stop_order(confirmed_ms) WHERE confirmed_ms IS NOT NULL;
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_object ON event(object);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
