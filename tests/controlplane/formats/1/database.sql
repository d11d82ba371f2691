BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796013258436,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796013258436,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796013259040,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmptl5qlrgn/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796013259016,0,NULL,'f330cadb-6440-48f9-b46e-1f8955bac553',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'4f1354a8-9097-49d6-94cf-7679c082218a','7bee6baeeafb5429e4d1d47fcbe755b7e4bea757',1798605261000,'7f8a2bd952922f81cc86ca89ce294aae3e06020df6760553bd454d5af61c9ae8',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'3ff41aa0-5ef4-4008-8fb0-c190b62ed73e','4402b0493139a3e2be2d3229204403870c0e86fd',1798605261000,'7f8a2bd952922f81cc86ca89ce294aae3e06020df6760553bd454d5af61c9ae8',0,1796013261292,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796013261295,NULL,NULL,NULL,'7f8a2bd952922f81cc86ca89ce294aae3e06020df6760553bd454d5af61c9ae8',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796013259052);
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
INSERT INTO "enrolment_token" VALUES('82d1923204bad1f4',X'60E8BB81BFD714ACE5E21EE4D3CE8E4A76C7CDB73A242CE460CA97BBE00221F1','local','default',NULL,1796014161214,1796013261248);
INSERT INTO "enrolment_token" VALUES('09525f5bd4f58350',X'0455588E5D81B4C30575C3B64D3B993EFDE9E0341109109B1C4ACB424AFCB3D8','local','default',NULL,1796014161273,1796013261279);
INSERT INTO "enrolment_token" VALUES('1c46bf71ef55b122',X'9C47CDB5251E2833A3F9A0614DF310D07605FFD8ECD1B458E6138BD0D6249B56','local','default',NULL,1796014161285,1796013261288);
INSERT INTO "enrolment_token" VALUES('11daba823bbb1521',X'B5759449F9857D40BD381DB84521FEE13F59A97C96C5C88BF9F6005E0F09B29E','local','default',NULL,1796014161297,NULL);
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
INSERT INTO "event" VALUES(1,1796013258436,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1796013258436,'token.created',1,'alice','init','controlplane','','c48c91cf29f3d28c','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1796013258436,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1796013258436,'token.created',1,'bob','init','controlplane','','8365d876f1d91821','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1796013258436,'token.created',1,'','init','controlplane','','c5ea7cb172448b32','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1796013259020,'region.created',1,'','c5ea7cb172448b32','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796013259029,'node_pool.set',1,'','c5ea7cb172448b32','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796013259038,'registry.set',1,'','c5ea7cb172448b32','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796013259040,'account.created',1,'carol','c5ea7cb172448b32','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1796013259040,'token.created',1,'carol','c5ea7cb172448b32','operator','127.0.0.1','aad954251c67eea7','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1796013259042,'account.created',1,'dora','c5ea7cb172448b32','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1796013259042,'token.created',1,'dora','c5ea7cb172448b32','operator','127.0.0.1','519af1a571883335','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1796013259044,'account.changed',1,'alice','c5ea7cb172448b32','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1796013259046,'account.removed',1,'dora','c5ea7cb172448b32','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796013259052,'application.created',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796013259056,'tag.enabled',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796013259069,'tag.enabled',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1796013259083,'token.created',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','364c49be763c3371','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827549259083}');
INSERT INTO "event" VALUES(19,1796013259088,'token.created',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','4d7e685dbcfe8abd','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1796013259090,'token.revoked',1,'alice','c5ea7cb172448b32','operator','127.0.0.1','4d7e685dbcfe8abd','{"with": "4d7e685dbcfe8abd"}');
INSERT INTO "event" VALUES(21,1796013259095,'session.starting',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(22,1796013259102,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(23,1796013259102,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796013259101, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(24,1796013259106,'session.starting',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(25,1796013259116,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(26,1796013259116,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796013259115, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(27,1796013259144,'session.starting',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(28,1796013259160,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(29,1796013259160,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796013259157, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(30,1796013259165,'session.stop_requested',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(31,1796013259176,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(32,1796013259189,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(33,1796013259198,'session.starting',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null}');
INSERT INTO "event" VALUES(34,1796013261207,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1796013261214,'agent.token_created',1,'','c5ea7cb172448b32','operator','127.0.0.1','82d1923204bad1f4','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1796013261248,'agent.enrolled',1,'','82d1923204bad1f4','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "7bee6baeeafb5429e4d1d47fcbe755b7e4bea757"}');
INSERT INTO "event" VALUES(37,1796013261273,'agent.token_created',1,'','c5ea7cb172448b32','operator','127.0.0.1','09525f5bd4f58350','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1796013261279,'agent.enrolled',1,'','09525f5bd4f58350','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "4402b0493139a3e2be2d3229204403870c0e86fd"}');
INSERT INTO "event" VALUES(39,1796013261285,'agent.token_created',1,'','c5ea7cb172448b32','operator','127.0.0.1','1c46bf71ef55b122','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796013261288,'agent.enrolled',1,'','1c46bf71ef55b122','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "689891fa6fa4f6ae24f8c70b5c0fd110f582c6c3"}');
INSERT INTO "event" VALUES(41,1796013261292,'agent.revoked',1,'','c5ea7cb172448b32','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1796013261295,'agent.removed',1,'','c5ea7cb172448b32','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1796013261297,'agent.token_created',1,'','c5ea7cb172448b32','operator','127.0.0.1','11daba823bbb1521','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796013261299,'webhook.created',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','8fdaa938184e773b','{"host": "127.0.0.1:9"}');
INSERT INTO "event" VALUES(45,1796013261302,'token.created',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','a0e4263fa2003fcf','{"name": "delivered", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(46,1796013261312,'warm_pool.set',1,'alice','c48c91cf29f3d28c','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE event_counter (
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL
) STRICT;
INSERT INTO "event_counter" VALUES(1,46);
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
INSERT INTO "image" VALUES(1,'127.0.0.1:35753/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:35753/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796013258524);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796013259162);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796013259162);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:35753','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'674141414141427244507A4C57337234665636374338466E7535675465696F4C374535655A613077526A7335434D35462D4F5A597069624C7A3963766A75635833736A71396856564C31527A557332312D784F4A374E6C6373445A2D426B73536D33576141386538646137466C78757137775A314D6F303D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','90513037-33eb-4168-ad2a-c43dd5b94ffb','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796013259095,1796013259101,NULL,NULL,NULL,NULL,'',0,NULL,1796013259101,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','d3695580-010a-47b8-8b4f-a8c6e1d49af7','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796013259106,1796013259115,1796013259165,1796013259174,'stopped',0,'',0,NULL,1796013259115,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','e0f71440-6c07-421c-bbe8-b6b4be4843d0','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796013259144,1796013259157,NULL,1796013259187,'exited',0,'',0,NULL,1796013259157,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('f60a0474-bd1d-41aa-b307-e506d48cf2f7','a0','unanswered',1796013261204,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:35753/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:35753/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('c48c91cf29f3d28c','alice','initial',X'399D49B094A79CA022619D75BF0387376299F27EF34152097B6EDA751D7A4ADE','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796013258436,NULL,NULL,1796013259051,'127.0.0.1');
INSERT INTO "token" VALUES('8365d876f1d91821','bob','initial',X'82966547E1D9FDA117BCF7D9FA38311B06704B7D4308D9F2947FA677E2421782','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796013258436,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('c5ea7cb172448b32',NULL,'initial',X'81D2EAA6D304D4D5567106DE2755C9D8D4E1A228CA7CF6CF37EE2D063074B0B3','["operator:read", "operator:write"]',NULL,1796013258436,NULL,NULL,1796013259018,'127.0.0.1');
INSERT INTO "token" VALUES('aad954251c67eea7','carol','initial',X'7BEA4BD165AA5C8009DFF48D784A5EA3BEC1230D64D9DC87A75C24C270850A66','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796013259040,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('364c49be763c3371','alice','reader',X'F6CEB4DEF489E069FE59279F3F4BEE0EA25E8B84A5A19B154BF433F968581B3E','["session:read"]','c48c91cf29f3d28c',1796013259083,1827549259083,NULL,NULL,NULL);
INSERT INTO "token" VALUES('4d7e685dbcfe8abd','alice','gone',X'9C6921D6974E56C551DE47FD416CBCCBA54409D81F88C5D7874DBDB10C780DF0','["session:read"]','c48c91cf29f3d28c',1796013259088,NULL,1796013259090,NULL,NULL);
INSERT INTO "token" VALUES('a0e4263fa2003fcf','alice','delivered',X'421BDE97FE313B65B1444ED7C1EF21991C083DC007FAC2F3CA0242B85AF7800A','["session:read"]','c48c91cf29f3d28c',1796013261302,NULL,NULL,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','42a09b87-251f-4dad-abb2-b372eff74e7e',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
INSERT INTO "webhook" VALUES('8fdaa938184e773b','alice','https://127.0.0.1:9/','é','{"kinds": ["token.*"], "image": "", "location": "", "labels": {}}',1,NULL,1,X'674141414141427244507A4E5556677A322D4339764441634D5663574F516D416151326B304D764F7555547A7878694E495F4465497667337A7658314B5A6C557A673059445A507266675672314A726F31307855624F7A4D4B4639444A7737705446633154697A43446F50764D534275616A553267343936794F4D615164614B4F4F4D427959397A6D3436477970645349433930693133786A5042464D4E6B654A78776C353852744839616972465355634D6B7671554D3D',NULL,NULL,1796013261299);
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
INSERT INTO "webhook_attempt" VALUES('8fdaa938184e773b',1,'1-45','token.created',1796013261304,0,'unreachable',NULL,'it cannot be connected to','');
CREATE TABLE webhook_progress (
    webhook TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_ms INTEGER,
    gap TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_progress" VALUES('8fdaa938184e773b',1,45,1,1796013261305,NULL);
CREATE TABLE webhook_retry (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_retry" VALUES('8fdaa938184e773b',45,1,1796013261305,1796013267254);
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
CREATE INDEX webhook_by_account ON webhook(account, created_ms);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
