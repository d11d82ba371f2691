BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796016523521,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796016523521,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796016524005,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp37xvc0uu/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796016523967,0,NULL,'cae73017-b651-43bd-979b-82a05588b598',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'47661f64-d594-4b19-a146-d912e012009c','313e129add9ae678670bd2a456e85630c03adaae',1798608526000,'3ac3e608c9a6efa45884c94ea1c28de77ceb6cbba8a43628503bda55001f6210',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'8be5f822-e947-4cbe-aa45-33282cd668df','729f480a7050e5901389b5ce4113d1e6c3e4aea4',1798608526000,'3ac3e608c9a6efa45884c94ea1c28de77ceb6cbba8a43628503bda55001f6210',0,1796016526242,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796016526246,NULL,NULL,NULL,'3ac3e608c9a6efa45884c94ea1c28de77ceb6cbba8a43628503bda55001f6210',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,0,1796016524038);
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
INSERT INTO "enrolment_token" VALUES('9c6586b43d120f10',X'FD01148C2608CCF9FDB0B90F8514651B0C3FE61FB389FF69EBC5883D260586DC','local','default',NULL,1796017426186,1796016526197);
INSERT INTO "enrolment_token" VALUES('382aad0bf872e07f',X'E44B4EEFEFAFB3C7907652BFB8D4FE9B6FE4FFCC379EF9B617D1BBB32A5F6C8C','local','default',NULL,1796017426208,1796016526212);
INSERT INTO "enrolment_token" VALUES('576e209eeb8d5026',X'80E8531233E528B7451AE84063097675522A587B9795144999F6D30F865D5832','local','default',NULL,1796017426230,1796016526236);
INSERT INTO "enrolment_token" VALUES('ab639daffa690beb',X'25E3EE43AFEEDF55E1C3677F1ABF9D4D775BD758EE07677753B9219ECC664146','local','default',NULL,1796017426248,NULL);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    actor_kind TEXT NOT NULL DEFAULT 'controlplane',
    address TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,1796016523521,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(2,1796016523521,'token.created',1,'alice','init','controlplane','','b81dcd35459358b5','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(3,1796016523521,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(4,1796016523521,'token.created',1,'bob','init','controlplane','','61827594b33bb90e','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(5,1796016523521,'token.created',1,'','init','controlplane','','3eac67a3b2630d3d','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expires": null}');
INSERT INTO "event" VALUES(6,1796016523976,'region.created',1,'','3eac67a3b2630d3d','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796016523981,'node_pool.set',1,'','3eac67a3b2630d3d','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796016524002,'registry.set',1,'','3eac67a3b2630d3d','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796016524005,'account.created',1,'carol','3eac67a3b2630d3d','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(10,1796016524005,'token.created',1,'carol','3eac67a3b2630d3d','operator','127.0.0.1','10f8091a1b160666','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(11,1796016524011,'account.created',1,'dora','3eac67a3b2630d3d','operator','127.0.0.1','dora','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(12,1796016524011,'token.created',1,'dora','3eac67a3b2630d3d','operator','127.0.0.1','73a8126c4ad98662','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(13,1796016524013,'account.changed',1,'alice','3eac67a3b2630d3d','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "cpu": 40.5, "ram": null}}');
INSERT INTO "event" VALUES(14,1796016524017,'account.removed',1,'dora','3eac67a3b2630d3d','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796016524038,'application.created',1,'alice','b81dcd35459358b5','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796016524056,'tag.enabled',1,'alice','b81dcd35459358b5','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796016524065,'tag.pulled',1,'alice','a0','controlplane','','game:v1','{"agent": "a0", "region": "local", "digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(18,1796016524065,'tag.available',1,'alice','controlplane','controlplane','','game:v1','{"region": "local", "digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(19,1796016524066,'tag.enabled',1,'alice','b81dcd35459358b5','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(20,1796016524073,'tag.pulled',1,'alice','a0','controlplane','','game:v2','{"agent": "a0", "region": "local", "digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(21,1796016524073,'tag.available',1,'alice','controlplane','controlplane','','game:v2','{"region": "local", "digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(22,1796016524076,'token.created',1,'alice','b81dcd35459358b5','account','127.0.0.1','15eb11062ddbfc29','{"name": "reader", "scopes": ["session:read"], "expires": 1827552524076}');
INSERT INTO "event" VALUES(23,1796016524079,'token.created',1,'alice','b81dcd35459358b5','account','127.0.0.1','7caa060311ce2761','{"name": "gone", "scopes": ["session:read"], "expires": null}');
INSERT INTO "event" VALUES(24,1796016524081,'token.revoked',1,'alice','3eac67a3b2630d3d','operator','127.0.0.1','7caa060311ce2761','{"with": "7caa060311ce2761"}');
INSERT INTO "event" VALUES(25,1796016524084,'session.starting',1,'alice','b81dcd35459358b5','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(26,1796016524091,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(27,1796016524091,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796016524090, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(28,1796016524094,'session.starting',1,'alice','b81dcd35459358b5','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(29,1796016524097,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(30,1796016524097,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796016524097, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(31,1796016524105,'session.starting',1,'alice','b81dcd35459358b5','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(32,1796016524107,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(33,1796016524107,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796016524106, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(34,1796016524115,'session.stop_requested',1,'alice','b81dcd35459358b5','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(35,1796016524122,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(36,1796016524126,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(37,1796016524148,'session.starting',1,'alice','b81dcd35459358b5','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null}');
INSERT INTO "event" VALUES(38,1796016526182,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(39,1796016526186,'agent.token_created',1,'','3eac67a3b2630d3d','operator','127.0.0.1','9c6586b43d120f10','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796016526197,'agent.enrolled',1,'','9c6586b43d120f10','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "313e129add9ae678670bd2a456e85630c03adaae"}');
INSERT INTO "event" VALUES(41,1796016526208,'agent.token_created',1,'','3eac67a3b2630d3d','operator','127.0.0.1','382aad0bf872e07f','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(42,1796016526212,'agent.enrolled',1,'','382aad0bf872e07f','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "729f480a7050e5901389b5ce4113d1e6c3e4aea4"}');
INSERT INTO "event" VALUES(43,1796016526230,'agent.token_created',1,'','3eac67a3b2630d3d','operator','127.0.0.1','576e209eeb8d5026','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796016526236,'agent.enrolled',1,'','576e209eeb8d5026','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "4a4efa6eff3368dc1040ac93bfcfffda8539b7e2"}');
INSERT INTO "event" VALUES(45,1796016526242,'agent.revoked',1,'','3eac67a3b2630d3d','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(46,1796016526246,'agent.removed',1,'','3eac67a3b2630d3d','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(47,1796016526248,'agent.token_created',1,'','3eac67a3b2630d3d','operator','127.0.0.1','ab639daffa690beb','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(48,1796016526250,'webhook.created',1,'alice','b81dcd35459358b5','account','127.0.0.1','7d09ed42d47ee7d9','{"host": "127.0.0.1:9"}');
INSERT INTO "event" VALUES(49,1796016526256,'token.created',1,'alice','b81dcd35459358b5','account','127.0.0.1','2e82d48d9ffd96e0','{"name": "delivered", "scopes": ["session:read"], "expires": null}');
INSERT INTO "event" VALUES(50,1796016526264,'warm_pool.set',1,'alice','b81dcd35459358b5','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE event_counter (
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL
) STRICT;
INSERT INTO "event_counter" VALUES(1,50);
CREATE TABLE event_start (
    account TEXT NOT NULL,
    retention TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (account, retention)
) STRICT, WITHOUT ROWID;
INSERT INTO "event_start" VALUES('dora','ACTS',14);
INSERT INTO "event_start" VALUES('dora','AGE',14);
INSERT INTO "event_start" VALUES('dora','PLAYERS',14);
INSERT INTO "event_start" VALUES('dora','SESSIONS',14);
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:38507/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:38507/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796016523603);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796016524111);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796016524111);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:38507','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'674141414141427244516D4D306451413971584277335836525654636A574F68386B717661486E656C6E3242736C517A4D47454331734E444A636F78333646306E687A30614F6C785974374433523277317373326948504F435234714D426F7A484B6F6B68644B4A6834624C4239706E52764C623466453D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','70bdf325-84f7-4344-a0bd-090f5947df23','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796016524084,1796016524090,NULL,NULL,NULL,NULL,'',0,NULL,1796016524090,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','e9cc215a-a1fa-4e9a-b072-2a2dc6002628','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796016524094,1796016524097,1796016524115,1796016524121,'stopped',0,'',0,NULL,1796016524097,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','3a82917e-9fa6-47d6-8cf6-a116800a85af','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796016524105,1796016524106,NULL,1796016524125,'exited',0,'',0,NULL,1796016524106,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('7cd66ea5-b8d7-4f7a-8ebc-0277e9465ae4','a0','unanswered',1796016526178,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:38507/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:38507/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
CREATE TABLE tag_in_region (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    tag TEXT NOT NULL,
    region TEXT NOT NULL,
    digest TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    available INTEGER NOT NULL,
    reasons TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (account, application, tag, region),
    FOREIGN KEY (account, application, tag) REFERENCES tag(account, application, name)
        ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO "tag_in_region" VALUES('alice','game','v1','local','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','default',1,'[]');
INSERT INTO "tag_in_region" VALUES('alice','game','v2','local','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','default',1,'[]');
CREATE TABLE tag_on_host (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    tag TEXT NOT NULL,
    agent TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (account, application, tag, agent),
    FOREIGN KEY (account, application, tag) REFERENCES tag(account, application, name)
        ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
INSERT INTO "tag_on_host" VALUES('alice','game','v1','a0','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18');
INSERT INTO "tag_on_host" VALUES('alice','game','v2','a0','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365');
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
INSERT INTO "token" VALUES('b81dcd35459358b5','alice','initial',X'3E090233932CFF4BC55FB5136471A746BA116E57E9AC9F80F22D8F98CE6070BB','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796016523521,NULL,NULL,1796016524034,'127.0.0.1');
INSERT INTO "token" VALUES('61827594b33bb90e','bob','initial',X'98FDED2A27E04DCE7ABF73FAC32971E3656C04ED7A7D288166FE0688DD576B47','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796016523521,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('3eac67a3b2630d3d',NULL,'initial',X'73F5D05613FE98265B2310E1DF8B12A41870DC4B92E8B25EC3382EDC85250DA8','["operator:read", "operator:write"]',NULL,1796016523521,NULL,NULL,1796016523974,'127.0.0.1');
INSERT INTO "token" VALUES('10f8091a1b160666','carol','initial',X'7323FB030F28BF492B3EFF1B58FE3F0FA3ECBA8374057C39FCB26F41BF04B56F','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796016524005,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('15eb11062ddbfc29','alice','reader',X'D0FF00181F8CE10EC73F6D3E0103233B9B7343D0AED5BDCE52874D567D48CCB8','["session:read"]','b81dcd35459358b5',1796016524076,1827552524076,NULL,NULL,NULL);
INSERT INTO "token" VALUES('7caa060311ce2761','alice','gone',X'373D0AF390A110E7AED37B390E20C9E31B5403EC4F535B3170DAC4E3BE242B2A','["session:read"]','b81dcd35459358b5',1796016524079,NULL,1796016524081,NULL,NULL);
INSERT INTO "token" VALUES('2e82d48d9ffd96e0','alice','delivered',X'D30B13D7FE83C05AFCF58317745CE68E70BC5D827C5E233B40912A04EA45E14D','["session:read"]','b81dcd35459358b5',1796016526256,NULL,NULL,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','96163bf7-2f7c-47cf-81f7-a82246cbc4c2',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','',NULL);
CREATE TABLE webhook (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES account(name),
    url TEXT NOT NULL,
    description TEXT NOT NULL,
    filter TEXT NOT NULL,
    ordered INTEGER NOT NULL,
    disabled TEXT,
    generation INTEGER NOT NULL,
    sealed_secret BLOB NOT NULL,
    former_secret BLOB,
    former_until_ms INTEGER,
    created_ms INTEGER NOT NULL
) STRICT;
INSERT INTO "webhook" VALUES('7d09ed42d47ee7d9','alice','https://127.0.0.1:9/','é','{"kinds": ["token.*"], "image": "", "location": "", "labels": {}}',1,NULL,1,X'674141414141427244516D4F693036395A43447672507537314A5039553934546444597542595A796A456830323058436A3530476D5574777A4B706971634746416846497349764865676D4B675074433970304C7053643548466C7767495138466A744C35594D30486F71652D383869586B317539312D6A3038525A4B386C673066513979687A6A4346455F31624455634A73624657594D534E4750632D4672434F324F7535356E756C433952686B4953562D6D6869593D',NULL,NULL,1796016526250);
CREATE TABLE webhook_attempt (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    kind TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER,
    error TEXT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT;
INSERT INTO "webhook_attempt" VALUES('7d09ed42d47ee7d9',1,'1-49','token.created',1796016526259,0,'unreachable',NULL,'it cannot be connected to','');
CREATE TABLE webhook_progress (
    webhook TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_ms INTEGER,
    gap TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_progress" VALUES('7d09ed42d47ee7d9',1,49,1,1796016526260,NULL);
CREATE TABLE webhook_retry (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_retry" VALUES('7d09ed42d47ee7d9',49,1,1796016526260,1796016531520);
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX application_by_region ON application_region(region);
CREATE INDEX tag_by_image ON tag(image);
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
CREATE INDEX event_of_players ON event(time_ms) WHERE kind IN ('players.joined', 'players.left');
CREATE INDEX tag_on_host_by_agent ON tag_on_host(agent);
CREATE INDEX webhook_by_account ON webhook(account, created_ms);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
