BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796010887532,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796010887532,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796010887683,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp3_p0a8al/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796010887665,0,NULL,'7ab90064-087d-4d32-987e-00f6bb832b05',0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'8da6b474-116d-4c63-82ab-b8e99309e280','4ae22309fc38a6f2a71cbbe02b8bdb2821da8183',1798602889000,'2fc5bc344884d4e5dacf34d909946273f2716811d68d0906873d45f09656d7ad',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'af45a7d7-1f20-4585-9b2d-e7c0f0371925','311c19addbb178f96d3d8ffc9b83c506e32f06fa',1798602889000,'2fc5bc344884d4e5dacf34d909946273f2716811d68d0906873d45f09656d7ad',0,1796010889834,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796010889837,NULL,NULL,NULL,'2fc5bc344884d4e5dacf34d909946273f2716811d68d0906873d45f09656d7ad',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796010887707);
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
INSERT INTO "enrolment_token" VALUES('f4db790e50da32a4',X'F53D0D7D94E749D5756EBB550F018D075BF8847D0E2E885363968F99F3EFB399','local','default',NULL,1796011789804,1796010889813);
INSERT INTO "enrolment_token" VALUES('b205d07659e57a38',X'858C31E25C60215645470443022C376194F1A7DD5C5626BDC4CB0A23D0C866CE','local','default',NULL,1796011789819,1796010889823);
INSERT INTO "enrolment_token" VALUES('03085bdcb1b94114',X'073A6EF7CB2110DD1D9A02BE149B0F397A2C037A446F7A0923615DC4CF536F54','local','default',NULL,1796011789829,1796010889831);
INSERT INTO "enrolment_token" VALUES('233a5cead401e5ec',X'C7F116A07901C072A42A87EC1A7486B222ACDD8490B07A3DDDE9082E965EB1DA','local','default',NULL,1796011789840,NULL);
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
INSERT INTO "event" VALUES(1,1796010887532,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1796010887532,'token.created',1,'alice','init','controlplane','','0d260c02a6320a52','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1796010887532,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1796010887532,'token.created',1,'bob','init','controlplane','','b4c250a2605de6dd','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1796010887532,'token.created',1,'','init','controlplane','','4298285ae96d920c','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1796010887671,'region.created',1,'','4298285ae96d920c','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796010887675,'node_pool.set',1,'','4298285ae96d920c','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796010887681,'registry.set',1,'','4298285ae96d920c','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796010887683,'account.created',1,'carol','4298285ae96d920c','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1796010887683,'token.created',1,'carol','4298285ae96d920c','operator','127.0.0.1','7b2d8224daf09e7f','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1796010887686,'account.created',1,'dora','4298285ae96d920c','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1796010887686,'token.created',1,'dora','4298285ae96d920c','operator','127.0.0.1','3caa44294e92e9f1','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1796010887690,'account.changed',1,'alice','4298285ae96d920c','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1796010887692,'account.removed',1,'dora','4298285ae96d920c','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796010887707,'application.created',1,'alice','0d260c02a6320a52','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796010887712,'tag.enabled',1,'alice','0d260c02a6320a52','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796010887730,'tag.enabled',1,'alice','0d260c02a6320a52','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1796010887743,'token.created',1,'alice','0d260c02a6320a52','account','127.0.0.1','2a1c786b6e2691d6','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827546887743}');
INSERT INTO "event" VALUES(19,1796010887746,'token.created',1,'alice','0d260c02a6320a52','account','127.0.0.1','b0bc9450e6ba34ce','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1796010887748,'token.revoked',1,'alice','4298285ae96d920c','operator','127.0.0.1','b0bc9450e6ba34ce','{"with": "b0bc9450e6ba34ce"}');
INSERT INTO "event" VALUES(21,1796010887752,'session.starting',1,'alice','0d260c02a6320a52','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(22,1796010887757,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(23,1796010887757,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796010887755, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(24,1796010887762,'session.starting',1,'alice','0d260c02a6320a52','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(25,1796010887765,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(26,1796010887765,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796010887764, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(27,1796010887768,'session.starting',1,'alice','0d260c02a6320a52','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(28,1796010887770,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(29,1796010887770,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796010887770, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(30,1796010887774,'session.stop_requested',1,'alice','0d260c02a6320a52','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(31,1796010887777,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(32,1796010887781,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(33,1796010887788,'session.starting',1,'alice','0d260c02a6320a52','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}}');
INSERT INTO "event" VALUES(34,1796010889797,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1796010889804,'agent.token_created',1,'','4298285ae96d920c','operator','127.0.0.1','f4db790e50da32a4','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1796010889813,'agent.enrolled',1,'','f4db790e50da32a4','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "4ae22309fc38a6f2a71cbbe02b8bdb2821da8183"}');
INSERT INTO "event" VALUES(37,1796010889819,'agent.token_created',1,'','4298285ae96d920c','operator','127.0.0.1','b205d07659e57a38','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1796010889823,'agent.enrolled',1,'','b205d07659e57a38','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "311c19addbb178f96d3d8ffc9b83c506e32f06fa"}');
INSERT INTO "event" VALUES(39,1796010889829,'agent.token_created',1,'','4298285ae96d920c','operator','127.0.0.1','03085bdcb1b94114','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796010889831,'agent.enrolled',1,'','03085bdcb1b94114','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "6e8d46cd0d2afaa7e48a6ead7936b9a1d0f50db1"}');
INSERT INTO "event" VALUES(41,1796010889834,'agent.revoked',1,'','4298285ae96d920c','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1796010889837,'agent.removed',1,'','4298285ae96d920c','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1796010889840,'agent.token_created',1,'','4298285ae96d920c','operator','127.0.0.1','233a5cead401e5ec','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796010889842,'warm_pool.set',1,'alice','0d260c02a6320a52','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE event_counter (
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL
) STRICT;
INSERT INTO "event_counter" VALUES(1,44);
CREATE TABLE event_start (
    account TEXT NOT NULL,
    retention TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (account, retention)
) STRICT, WITHOUT ROWID;
INSERT INTO "event_start" VALUES('dora','ACTS',14);
INSERT INTO "event_start" VALUES('dora','AGE',14);
INSERT INTO "event_start" VALUES('dora','SESSIONS',14);
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:35225/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:35225/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796010887571);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796010887773);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796010887773);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:35225','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'674141414141427244504F4838754741304B37516862336C5A4D4E425A5272555A776E686B5242385862436353594B375677477656547330574C634358507A574663323371466C573572393844344C456E6C6C4F77784374644778797A567A4D61786B3757686264374D7246644C5552654C39705F35513D','[]',1,'');
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
    ready_ms INTEGER,
    most_players INTEGER NOT NULL DEFAULT 0,
    earlier_players TEXT NOT NULL DEFAULT '[]',
    UNIQUE (account, id)
) STRICT;
INSERT INTO "session" VALUES(1,'alice','match ü','3305e48f-e4d7-4bff-8013-12a461b9d872','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796010887752,1796010887755,NULL,NULL,NULL,NULL,'',0,NULL,1796010887755,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','c7ee96e4-4e56-458c-9dac-a35d8a4a0747','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796010887762,1796010887764,1796010887774,1796010887776,'stopped',0,'',0,NULL,1796010887764,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','dde66469-9f4b-4556-9487-2bad3a37b499','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796010887768,1796010887770,NULL,1796010887779,'exited',0,'',0,NULL,1796010887770,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('02a66903-a8bf-477b-98f4-30b6662e7899','a0','unanswered',1796010889794,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:35225/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:35225/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('0d260c02a6320a52','alice','initial',X'7A4BE0109DFCBD8853375513094C3A65CF655A5F88C59EE26ED3A6ACEF56E46D','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796010887532,NULL,NULL,1796010887705,'127.0.0.1');
INSERT INTO "token" VALUES('b4c250a2605de6dd','bob','initial',X'1C39FA9D682C2C548365DDD40275133006B7F58E6C6DB225AF987EBCAF3199C3','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796010887532,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('4298285ae96d920c',NULL,'initial',X'0F9E74CA8EB450CBE177CF4045F17A8B53EEB18791F4A6C395E269B9AEF33E35','["operator:read", "operator:write"]',NULL,1796010887532,NULL,NULL,1796010887670,'127.0.0.1');
INSERT INTO "token" VALUES('7b2d8224daf09e7f','carol','initial',X'A94A8A290B423EE24167BBC4D78D889870B2C3131BD1240B8332414D21FD1D78','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796010887683,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('2a1c786b6e2691d6','alice','reader',X'40010F985191B5B381646CB41EF07534B3408652AF0C702583FD71988ABDBFB0','["session:read"]','0d260c02a6320a52',1796010887743,1827546887743,NULL,NULL,NULL);
INSERT INTO "token" VALUES('b0bc9450e6ba34ce','alice','gone',X'ABB98C0E5603585C5752ED38E4D3F65195F2346C26E6B534DBBAD85701E87793','["session:read"]','0d260c02a6320a52',1796010887746,NULL,1796010887748,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','c868c10c-6987-4ecc-a957-c3a4d96f3f52',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
