BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796014528385,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796014528385,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796014528714,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpd5ltmooj/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796014528663,0,NULL,'be49a5bd-ed88-4606-9ee6-98f08fe29ebf',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'8eb5c42f-656d-4c0b-afa2-2644add7c97d','3d2d4ee996f3cc036744a5bc076d66eaf6418d6f',1798606530000,'999f3fa40fb5c1da1a26cf386412fd68b98412cdca66459bd4e15d525a677dca',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'aba917ea-1538-4682-acf2-f4e5886f0009','16a4fd082e9f5851af0585dee2bf5b2da29a01fb',1798606530000,'999f3fa40fb5c1da1a26cf386412fd68b98412cdca66459bd4e15d525a677dca',0,1796014530921,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796014530924,NULL,NULL,NULL,'999f3fa40fb5c1da1a26cf386412fd68b98412cdca66459bd4e15d525a677dca',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796014528733);
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
INSERT INTO "enrolment_token" VALUES('545412f8efa6e5c8',X'009CCAF887107D9014617E3205140E687B2C3AA34BCEB998FDEE0C8FADC8DA70','local','default',NULL,1796015430849,1796014530869);
INSERT INTO "enrolment_token" VALUES('86de08b2135d165f',X'252A9ACAD0C28720634AFFF276A53266E2F214D4B4EEF6B6D8B25E5D049CAD44','local','default',NULL,1796015430882,1796014530886);
INSERT INTO "enrolment_token" VALUES('dc716c73d05f0c31',X'1F42927323AA8FF9206C98FB540B85C94D41AAB33BBFCD23576BAA9429EB4A1B','local','default',NULL,1796015430899,1796014530913);
INSERT INTO "enrolment_token" VALUES('ba5ce373497e52b5',X'DACF79218C359A758F410E8E00B6C8EF5AF582BE3959DB19EA7E993ACFE96651','local','default',NULL,1796015430926,NULL);
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
INSERT INTO "event" VALUES(1,1796014528385,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1796014528385,'token.created',1,'alice','init','controlplane','','3f7e5f58e2a59d0f','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1796014528385,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1796014528385,'token.created',1,'bob','init','controlplane','','7f1082d865c2cfeb','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1796014528385,'token.created',1,'','init','controlplane','','d58ccaa2eeec9e55','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1796014528680,'region.created',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796014528691,'node_pool.set',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796014528712,'registry.set',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796014528714,'account.created',1,'carol','d58ccaa2eeec9e55','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1796014528714,'token.created',1,'carol','d58ccaa2eeec9e55','operator','127.0.0.1','41d2019ef8f62bc2','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1796014528717,'account.created',1,'dora','d58ccaa2eeec9e55','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1796014528717,'token.created',1,'dora','d58ccaa2eeec9e55','operator','127.0.0.1','ca4af8545f7cdedd','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1796014528719,'account.changed',1,'alice','d58ccaa2eeec9e55','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1796014528720,'account.removed',1,'dora','d58ccaa2eeec9e55','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796014528733,'application.created',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796014528747,'tag.enabled',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796014528770,'tag.enabled',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1796014528780,'token.created',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','d0b5dfcddd379aaf','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827550528780}');
INSERT INTO "event" VALUES(19,1796014528781,'token.created',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','9b99af8ed3adc02a','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1796014528783,'token.revoked',1,'alice','d58ccaa2eeec9e55','operator','127.0.0.1','9b99af8ed3adc02a','{"with": "9b99af8ed3adc02a"}');
INSERT INTO "event" VALUES(21,1796014528785,'session.starting',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(22,1796014528788,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(23,1796014528788,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796014528787, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(24,1796014528791,'session.starting',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(25,1796014528794,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(26,1796014528794,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796014528793, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(27,1796014528797,'session.starting',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(28,1796014528799,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(29,1796014528799,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796014528798, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(30,1796014528804,'session.stop_requested',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(31,1796014528806,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(32,1796014528811,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(33,1796014528818,'session.starting',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null}');
INSERT INTO "event" VALUES(34,1796014530839,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1796014530849,'agent.token_created',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','545412f8efa6e5c8','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1796014530869,'agent.enrolled',1,'','545412f8efa6e5c8','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "3d2d4ee996f3cc036744a5bc076d66eaf6418d6f"}');
INSERT INTO "event" VALUES(37,1796014530882,'agent.token_created',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','86de08b2135d165f','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1796014530886,'agent.enrolled',1,'','86de08b2135d165f','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "16a4fd082e9f5851af0585dee2bf5b2da29a01fb"}');
INSERT INTO "event" VALUES(39,1796014530899,'agent.token_created',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','dc716c73d05f0c31','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796014530913,'agent.enrolled',1,'','dc716c73d05f0c31','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "7dd7d4e93790ba4dea7cd885a63a07730e3f75cd"}');
INSERT INTO "event" VALUES(41,1796014530921,'agent.revoked',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1796014530924,'agent.removed',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1796014530926,'agent.token_created',1,'','d58ccaa2eeec9e55','operator','127.0.0.1','ba5ce373497e52b5','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796014530928,'webhook.created',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','52b16adc98123890','{"host": "127.0.0.1:9"}');
INSERT INTO "event" VALUES(45,1796014530940,'token.created',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','0ec401dbe30c15a7','{"name": "delivered", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(46,1796014530950,'warm_pool.set',1,'alice','3f7e5f58e2a59d0f','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
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
INSERT INTO "image" VALUES(1,'127.0.0.1:46625/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:46625/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796014528458);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796014528802);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796014528802);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:46625','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272445148413866476335426C6E48485772394E4434584A5678746C37326169534C6269446873566A5830776D4D3967734674415162515843364246777A7165515F3655756531306E344B59554247455262746C616373726477744748475133597A704B6F43596D546C397A6D4C4D55733D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','39e938ae-7f9b-4ece-8340-65e9af4218a7','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796014528785,1796014528787,NULL,NULL,NULL,NULL,'',0,NULL,1796014528787,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','a2e55790-b379-457f-a53f-c6cbb824c1bf','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796014528791,1796014528793,1796014528804,1796014528805,'stopped',0,'',0,NULL,1796014528793,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','0d0016d9-a2b7-4943-b71a-8187f16d1a18','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796014528797,1796014528798,NULL,1796014528809,'exited',0,'',0,NULL,1796014528798,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('13f974ed-45dc-49ab-8ee6-dcb5e4637156','a0','unanswered',1796014530829,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:46625/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:46625/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('3f7e5f58e2a59d0f','alice','initial',X'C63554F5E6495F684D90FABC4E207C2D9ED51EB2E8CE6C8F12827B57C9B004E6','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796014528385,NULL,NULL,1796014528732,'127.0.0.1');
INSERT INTO "token" VALUES('7f1082d865c2cfeb','bob','initial',X'05303186E035637D175AFD2E5180418E26DB81F934009B7E68E1D86CB02AE6FD','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796014528385,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d58ccaa2eeec9e55',NULL,'initial',X'0C4BB5CFD83885DB2D38234F9A69F45C5FFBAD87A086DF9D7F3D8AFB26615B3C','["operator:read", "operator:write"]',NULL,1796014528385,NULL,NULL,1796014528671,'127.0.0.1');
INSERT INTO "token" VALUES('41d2019ef8f62bc2','carol','initial',X'0402FC5A1A09E4900ECCA3D525F9044178E707C13F1AE03DEC5772F5E12BD556','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796014528714,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d0b5dfcddd379aaf','alice','reader',X'C52F1B99A97863D67E4051A755F5807757A59DCAD32ACC17DD7D34ED3F6E55CB','["session:read"]','3f7e5f58e2a59d0f',1796014528780,1827550528780,NULL,NULL,NULL);
INSERT INTO "token" VALUES('9b99af8ed3adc02a','alice','gone',X'CEDAC063B34DA917840C01974C32BF1C19CF09724AF483AABF89B301A790566B','["session:read"]','3f7e5f58e2a59d0f',1796014528781,NULL,1796014528783,NULL,NULL);
INSERT INTO "token" VALUES('0ec401dbe30c15a7','alice','delivered',X'6B9E2E41342DBE66F672D6E8712F2E0E5389E6A38AACCE1DEDB4944EBB97CB17','["session:read"]','3f7e5f58e2a59d0f',1796014530940,NULL,NULL,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','814a635a-cbe0-41ff-aab1-fb4cd16a9397',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','',NULL);
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
INSERT INTO "webhook" VALUES('52b16adc98123890','alice','https://127.0.0.1:9/','é','{"kinds": ["token.*"], "image": "", "location": "", "labels": {}}',1,NULL,1,X'6741414141414272445148435664554E4D514D544E77434B71495A7A73574D4C555F42313449364446554D4B4946762D7833555062733535774134322D7A7A6F6E73573250624E53664C566577796A5842593448736476466B3339796F72522D58517239556C397475537A594F704370344E50366D586B796A674D386F4948444D776E65554C71414732776C455F4D6A4C6D4E505A624A696B50427145544D375573557A53505857312D58313744735151466B743747633D',NULL,NULL,1796014530928);
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
INSERT INTO "webhook_attempt" VALUES('52b16adc98123890',1,'1-45','token.created',1796014530942,0,'unreachable',NULL,'it cannot be connected to','');
CREATE TABLE webhook_progress (
    webhook TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_ms INTEGER,
    gap TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_progress" VALUES('52b16adc98123890',1,45,1,1796014530943,NULL);
CREATE TABLE webhook_retry (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_retry" VALUES('52b16adc98123890',45,1,1796014530943,1796014536079);
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
