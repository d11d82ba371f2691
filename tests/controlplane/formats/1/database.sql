BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795900239621,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795900239621,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795900239868,NULL,9,NULL,NULL);
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
    lost_ms INTEGER
) STRICT;
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp11eoz3hs/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795900239690,0,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'ed40d3d6-68e8-49cb-9906-83eafa40456e','247a31534e2037cd28261cfa1a50cd5978ebef81',1798492242000,'ec441de76781df1be733656747385233fbb9105b3c651bb064163856f6371638',0,NULL,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'d3cc07b7-9f11-4e6e-b71e-29ed71782f6e','1333514a78f1f7ceed1e83d2e09c1098ec09bfcc',1798492242000,'ec441de76781df1be733656747385233fbb9105b3c651bb064163856f6371638',0,1795900242227,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795900242243,NULL,NULL,NULL,'ec441de76781df1be733656747385233fbb9105b3c651bb064163856f6371638',0,NULL,0,0,NULL,NULL,0,NULL);
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
    disk_bytes INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,1795900239915);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('d4b27f6a97754030',X'1AA74A23F82236AE58B146339F8FCFE13FA877C99439DDFCFC9C25B9AFA7D904','local','default',NULL,1795901142141,1795900242152);
INSERT INTO "enrolment_token" VALUES('995f6f26fd02a6e8',X'171E34E8DCE46C11CA24345FE80B737DD79809B8EA93599546C121FF3BB15EF2','local','default',NULL,1795901142177,1795900242185);
INSERT INTO "enrolment_token" VALUES('417f9ea10ec484b8',X'F1CA506E4560397C9E7AB45D69AD37D9984C73193F483ABD8A68CFAABBBF8A9E','local','default',NULL,1795901142208,1795900242213);
INSERT INTO "enrolment_token" VALUES('c59621478e8b2794',X'7451700A414E98F04FE3E3FDDAA6BBA948DCC26EC0F389716A23D3A7419F50CC','local','default',NULL,1795901142250,NULL);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,1795900239621,'account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795900239621,'token.created','alice','init','','ff49eca77c7a15e2','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795900239621,'account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795900239621,'token.created','bob','init','','c5a2cbbd7bb4920d','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795900239621,'token.created','','init','','87b1f961e339fdbc','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795900239850,'region.created','','87b1f961e339fdbc','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795900239855,'node_pool.set','','87b1f961e339fdbc','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false}');
INSERT INTO "event" VALUES(8,1795900239863,'registry.set','','87b1f961e339fdbc','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795900239868,'account.created','carol','87b1f961e339fdbc','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795900239868,'token.created','carol','87b1f961e339fdbc','127.0.0.1','2d6daca96a5fcd06','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795900239873,'account.created','dora','87b1f961e339fdbc','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795900239873,'token.created','dora','87b1f961e339fdbc','127.0.0.1','bb465d1f2c30b535','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795900239879,'account.changed','alice','87b1f961e339fdbc','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795900239883,'account.removed','dora','87b1f961e339fdbc','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795900239915,'application.created','alice','ff49eca77c7a15e2','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795900240023,'tag.enabled','alice','ff49eca77c7a15e2','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795900240042,'tag.enabled','alice','ff49eca77c7a15e2','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795900240052,'token.created','alice','ff49eca77c7a15e2','127.0.0.1','186391a77c8838f8','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827436240052}');
INSERT INTO "event" VALUES(19,1795900240057,'token.created','alice','ff49eca77c7a15e2','127.0.0.1','c8b83a318f61a2e3','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795900240060,'token.revoked','alice','87b1f961e339fdbc','127.0.0.1','c8b83a318f61a2e3','{"with": "c8b83a318f61a2e3"}');
INSERT INTO "event" VALUES(21,1795900240065,'session.reserved','alice','ff49eca77c7a15e2','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795900240080,'session.reserved','alice','ff49eca77c7a15e2','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795900240090,'session.reserved','alice','ff49eca77c7a15e2','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795900240102,'session.stop','alice','ff49eca77c7a15e2','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795900240106,'session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795900240114,'session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795900240124,'session.reserved','alice','ff49eca77c7a15e2','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795900242133,'session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has capacity"}');
INSERT INTO "event" VALUES(29,1795900242141,'agent.token_created','','87b1f961e339fdbc','127.0.0.1','d4b27f6a97754030','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795900242152,'agent.enrolled','','d4b27f6a97754030','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "247a31534e2037cd28261cfa1a50cd5978ebef81"}');
INSERT INTO "event" VALUES(31,1795900242177,'agent.token_created','','87b1f961e339fdbc','127.0.0.1','995f6f26fd02a6e8','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795900242185,'agent.enrolled','','995f6f26fd02a6e8','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "1333514a78f1f7ceed1e83d2e09c1098ec09bfcc"}');
INSERT INTO "event" VALUES(33,1795900242208,'agent.token_created','','87b1f961e339fdbc','127.0.0.1','417f9ea10ec484b8','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795900242213,'agent.enrolled','','417f9ea10ec484b8','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "535fecf35cc472a70a8926c4feb0a97de072e151"}');
INSERT INTO "event" VALUES(35,1795900242227,'agent.revoked','','87b1f961e339fdbc','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795900242243,'agent.removed','','87b1f961e339fdbc','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795900242250,'agent.token_created','','87b1f961e339fdbc','127.0.0.1','c59621478e8b2794','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795900242257,'warm_pool.set','alice','ff49eca77c7a15e2','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    PRIMARY KEY (reference, account)
) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:35063/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES('127.0.0.1:35063/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1795900239667);
CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed',
    host_network INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "node_pool" VALUES('default','packed',0);
INSERT INTO "node_pool" VALUES('big','packed',0);
INSERT INTO "node_pool" VALUES('spread','spread',0);
CREATE TABLE player (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    session TEXT NOT NULL,
    player TEXT NOT NULL,
    UNIQUE (account, session, player),
    FOREIGN KEY (account, session) REFERENCES session(account, id) ON DELETE CASCADE
) STRICT;
INSERT INTO "player" VALUES(1,'alice','match ü','ann');
INSERT INTO "player" VALUES(2,'alice','match ü','bert');
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
INSERT INTO "registry" VALUES('local','127.0.0.1:35063','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'674141414141427243304E50455079724C346E55584149626F76623279477056337030315A52365078576F613245796E6C6A4843676D615473497370653143746241347573795A777551776F523332355F427455416F494B6A316D704E595453736273505149334B4C7941443964786A54656D72376C633D','[]',1,'');
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
    UNIQUE (account, id)
) STRICT;
INSERT INTO "session" VALUES(1,'alice','match ü','21a2eb84-de0b-427b-8de7-739777bdb3cf','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',NULL,1000000000,268435456,2,1795900240065,1795900240071,NULL,NULL,NULL,NULL,'',0);
INSERT INTO "session" VALUES(2,'alice','stopped','9f146a13-191b-4fdd-bab0-17b3e50cc21b','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795900240080,1795900240084,1795900240102,1795900240105,'stopped',0,'',0);
INSERT INTO "session" VALUES(3,'alice','fails','7023582a-1a3f-4c86-a51c-f18e9d0903e3','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795900240090,1795900240093,NULL,1795900240111,'exited',0,'',0);
CREATE TABLE tag (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    image TEXT NOT NULL,
    priority INTEGER NOT NULL,
    PRIMARY KEY (account, application, name),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:35063/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:35063/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',2);
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
INSERT INTO "token" VALUES('ff49eca77c7a15e2','alice','initial',X'75619F27CF529AE436EFE352C663F66C670EFE12765DC9895347535D3D46D205','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795900239621,NULL,NULL,1795900239901,'127.0.0.1');
INSERT INTO "token" VALUES('c5a2cbbd7bb4920d','bob','initial',X'417B1DCA2BC3538C1BDCDB19EBA3D6DFC2F2567845E67D8D36D0DE8A66B1FB5F','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795900239621,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('87b1f961e339fdbc',NULL,'initial',X'80EE51840524E2BBA9575114FB10513434023C141C12525901E1E7942D268C76','["operator:read", "operator:write"]',NULL,1795900239621,NULL,NULL,1795900239848,'127.0.0.1');
INSERT INTO "token" VALUES('2d6daca96a5fcd06','carol','initial',X'56D59AA3E6B9FABD171C1B7D0624BC8D1C5FE633F7410BAA22DF5CEEB67F8DB8','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795900239868,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('186391a77c8838f8','alice','reader',X'A04C9EF27361D99FC8BDF84796D0FC4D0451D1166E585947FDC7486554CEFE86','["session:read"]','ff49eca77c7a15e2',1795900240052,1827436240052,NULL,NULL,NULL);
INSERT INTO "token" VALUES('c8b83a318f61a2e3','alice','gone',X'AF375C1689F21C76B56AA1F984E9739FEEC7597326DC17999DA109F541431DD7','["session:read"]','ff49eca77c7a15e2',1795900240057,NULL,1795900240060,NULL,NULL);
CREATE TABLE unanswered (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "unanswered" VALUES('f51ab9a1-6b79-48da-b119-8832103a9f8b','a0',1795900242131,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','76036440-80b5-4228-a919-30e6bbf81ddb',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX unrevoked_token ON token(account, expire_ms) WHERE revoked_ms IS NULL;
CREATE INDEX image_account ON image(account);
CREATE UNIQUE INDEX agent_by_id ON agent(id) WHERE id IS NOT NULL;
CREATE INDEX session_by_end ON session(ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX session_by_account ON session(account);
CREATE INDEX live_session ON session(ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_account ON session(account, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_tag ON session(account, tag, ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_application ON session(account, application, ended_ms)
    WHERE ended_ms IS NULL;
CREATE INDEX live_usage ON session(account, nano_cpus, memory_bytes, id, ended_ms)
    WHERE ended_ms IS NULL;
CREATE INDEX live_label_by_session ON live_label(number);
CREATE INDEX player_by_id ON player(account, player);
CREATE INDEX unanswered_by_agent ON unanswered(agent) WHERE stopped_ms IS NULL;
CREATE INDEX unanswered_by_stop ON unanswered(stopped_ms) WHERE stopped_ms IS NOT NULL;
CREATE INDEX event_by_time ON event(time_ms);
CREATE INDEX event_by_topic ON event(substr(kind, 1, instr(kind || '.', '.') - 1));
CREATE INDEX event_by_kind ON event(kind);
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_actor ON event(actor);
CREATE INDEX event_by_object ON event(object);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',38);
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
