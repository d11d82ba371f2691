BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796012909054,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796012909054,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796012909461,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp0nly96ud/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796012909443,0,NULL,'5ba20d92-fef4-421a-960e-797af7f17c9d',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'e309e126-6140-488e-b9a4-d0de3f93351c','21d690da69d4298f12bbaf2e143c442acae2dbda',1798604911000,'db616012918af0a176b80f588fe7275803df61a523eb03d9d1da9f7848a31995',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'26849972-1ddb-40e0-bd63-33536f9e09eb','513f9f7c79a44bd64bf7ab78141442648e919c86',1798604911000,'db616012918af0a176b80f588fe7275803df61a523eb03d9d1da9f7848a31995',0,1796012911617,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796012911621,NULL,NULL,NULL,'db616012918af0a176b80f588fe7275803df61a523eb03d9d1da9f7848a31995',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796012909488);
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
INSERT INTO "enrolment_token" VALUES('a8661ec0894d63fe',X'553EDD630EBE19FF494C8F3FCEB6D7627DC7E80201001408695162C13A444163','local','default',NULL,1796013811588,1796012911593);
INSERT INTO "enrolment_token" VALUES('66c72f0b70eca7b9',X'90163337101B7825EBE75F47E0E534E63E17CBE946B4F33FBEAE82A750D5B8D5','local','default',NULL,1796013811600,1796012911606);
INSERT INTO "enrolment_token" VALUES('d8f492b359d8b072',X'E4DFAF4F3847577C3D2A6268D42C731C6E9CB1B6AAAE20873B8F6EF25609BF6B','local','default',NULL,1796013811613,1796012911615);
INSERT INTO "enrolment_token" VALUES('11f4b0941764f6c7',X'9ED4942FEDC89A977A08BE4EE554FAF0492E1F1A501D8F731D19DA28B6352318','local','default',NULL,1796013811622,NULL);
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
INSERT INTO "event" VALUES(1,1796012909054,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1796012909054,'token.created',1,'alice','init','controlplane','','ab0350ea337f6ee8','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1796012909054,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1796012909054,'token.created',1,'bob','init','controlplane','','01aaeecc8a9f6eb2','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1796012909054,'token.created',1,'','init','controlplane','','d69815cc416beb48','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1796012909449,'region.created',1,'','d69815cc416beb48','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796012909451,'node_pool.set',1,'','d69815cc416beb48','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796012909459,'registry.set',1,'','d69815cc416beb48','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796012909461,'account.created',1,'carol','d69815cc416beb48','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1796012909461,'token.created',1,'carol','d69815cc416beb48','operator','127.0.0.1','eb262058b29bc098','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1796012909463,'account.created',1,'dora','d69815cc416beb48','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1796012909463,'token.created',1,'dora','d69815cc416beb48','operator','127.0.0.1','f469f42936375e27','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1796012909465,'account.changed',1,'alice','d69815cc416beb48','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1796012909468,'account.removed',1,'dora','d69815cc416beb48','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796012909488,'application.created',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796012909504,'tag.enabled',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796012909514,'tag.enabled',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1796012909521,'token.created',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','f468ac92294b48fc','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827548909521}');
INSERT INTO "event" VALUES(19,1796012909523,'token.created',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','726c5fc5704417f3','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1796012909525,'token.revoked',1,'alice','d69815cc416beb48','operator','127.0.0.1','726c5fc5704417f3','{"with": "726c5fc5704417f3"}');
INSERT INTO "event" VALUES(21,1796012909527,'session.starting',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(22,1796012909530,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(23,1796012909530,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796012909529, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(24,1796012909534,'session.starting',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(25,1796012909537,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(26,1796012909537,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796012909536, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(27,1796012909541,'session.starting',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(28,1796012909543,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(29,1796012909543,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796012909542, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(30,1796012909548,'session.stop_requested',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(31,1796012909552,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(32,1796012909558,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(33,1796012909565,'session.starting',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null}');
INSERT INTO "event" VALUES(34,1796012911585,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1796012911588,'agent.token_created',1,'','d69815cc416beb48','operator','127.0.0.1','a8661ec0894d63fe','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1796012911593,'agent.enrolled',1,'','a8661ec0894d63fe','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "21d690da69d4298f12bbaf2e143c442acae2dbda"}');
INSERT INTO "event" VALUES(37,1796012911600,'agent.token_created',1,'','d69815cc416beb48','operator','127.0.0.1','66c72f0b70eca7b9','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1796012911606,'agent.enrolled',1,'','66c72f0b70eca7b9','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "513f9f7c79a44bd64bf7ab78141442648e919c86"}');
INSERT INTO "event" VALUES(39,1796012911613,'agent.token_created',1,'','d69815cc416beb48','operator','127.0.0.1','d8f492b359d8b072','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796012911615,'agent.enrolled',1,'','d8f492b359d8b072','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "19f354b1ecef2c6d87baafc8a53168c3d94609fc"}');
INSERT INTO "event" VALUES(41,1796012911617,'agent.revoked',1,'','d69815cc416beb48','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1796012911621,'agent.removed',1,'','d69815cc416beb48','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1796012911622,'agent.token_created',1,'','d69815cc416beb48','operator','127.0.0.1','11f4b0941764f6c7','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796012911623,'warm_pool.set',1,'alice','ab0350ea337f6ee8','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
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
INSERT INTO "image" VALUES(1,'127.0.0.1:35495/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:35495/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796012909175);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796012909547);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796012909547);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:35495','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272445074746D66564C5074697870726634733451726B582D49466F4D4B5773546F6934354B7662694B704E74334267554E3530554E724F517A4D58696A534831576E655031505A4E5F68574F6C554756724A593263756158333038565A39395870596E47535A4D653873335054796B593D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','cb64fd51-e7cb-495b-9d68-2618ac8403a8','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796012909527,1796012909529,NULL,NULL,NULL,NULL,'',0,NULL,1796012909529,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','a0a00963-eeaf-4472-a5ca-ee4a16e016e7','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796012909534,1796012909536,1796012909548,1796012909550,'stopped',0,'',0,NULL,1796012909536,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','4d485812-3a1e-4aa7-9408-a96cc5385f0a','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796012909541,1796012909542,NULL,1796012909556,'exited',0,'',0,NULL,1796012909542,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('e97d7ae5-4363-4262-899e-e1a4dd3bb80c','a0','unanswered',1796012911569,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:35495/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:35495/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('ab0350ea337f6ee8','alice','initial',X'1EBE2FEF22807634A95D979874D9FE543A8403909B0310D645FB6EAB59BB9BD8','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796012909054,NULL,NULL,1796012909487,'127.0.0.1');
INSERT INTO "token" VALUES('01aaeecc8a9f6eb2','bob','initial',X'444B0160C310DA5229335160B70309F9925210C86577F16FA26613B6C7630593','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796012909054,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d69815cc416beb48',NULL,'initial',X'C0F0BBAB25F714E5556452D79B5841D2033EB7BF57E130532AFBA09268AB8425','["operator:read", "operator:write"]',NULL,1796012909054,NULL,NULL,1796012909445,'127.0.0.1');
INSERT INTO "token" VALUES('eb262058b29bc098','carol','initial',X'06A44F1B268868E6D6EB6967387AB01A163ECB5FA447280112184872949D62B0','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796012909461,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('f468ac92294b48fc','alice','reader',X'242C23EB2BFC447A56EC666B6D53789FA8B3AA3C1726008C9AB7E728443B716D','["session:read"]','ab0350ea337f6ee8',1796012909521,1827548909521,NULL,NULL,NULL);
INSERT INTO "token" VALUES('726c5fc5704417f3','alice','gone',X'FCC863186C69DD254F41D1A78A68B47DAC7F866E9A5D7B76B545B0E744CBD30E','["session:read"]','ab0350ea337f6ee8',1796012909523,NULL,1796012909525,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','b62fd23f-de32-410c-949e-ddb019db6090',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
