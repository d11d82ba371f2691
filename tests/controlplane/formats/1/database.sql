BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796011360702,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796011360702,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796011360812,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpgpddn65r/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796011360793,0,NULL,'1ee4e10b-5c29-4943-a32b-ba4034a1f398',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'7c9fb760-6d32-44fa-9f75-2ef0fa6ffd1b','1fa82a19a569ff66ddd67df99168c4e3cd89d0c5',1798603362000,'6197a6a11b988cd8d5c6c6a99f8c4e4e804ef9524d681424a2b9d2e00c4f6d07',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'e39a0207-621b-413a-a9a6-4ba1fc65d450','77467e8e21013ac8c78ae493d177b2bc822fcc91',1798603362000,'6197a6a11b988cd8d5c6c6a99f8c4e4e804ef9524d681424a2b9d2e00c4f6d07',0,1796011362940,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796011362944,NULL,NULL,NULL,'6197a6a11b988cd8d5c6c6a99f8c4e4e804ef9524d681424a2b9d2e00c4f6d07',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796011360829);
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
INSERT INTO "enrolment_token" VALUES('71ab69f993657783',X'DA142F5C8EF97397831E729338417F191E7A1A66CF9F94678BC2812C78AB7D8A','local','default',NULL,1796012262910,1796011362918);
INSERT INTO "enrolment_token" VALUES('a5f6f996e8ee0cfe',X'0DD816C15F4F49B216DAE391E6C16BBB4DB2B93AA550D01861E9B2179D6F8086','local','default',NULL,1796012262926,1796011362928);
INSERT INTO "enrolment_token" VALUES('f2bd51e071a4d35d',X'23F3543C001826FC560CE0D0E029FAFA46C4D6E388D066D795A64A012357CD29','local','default',NULL,1796012262933,1796011362936);
INSERT INTO "enrolment_token" VALUES('e66905075c35740a',X'56954D87036A2CF82DEDEFD56A00912B6C84E8BD5196BA89913CC7D11C011067','local','default',NULL,1796012262947,NULL);
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
INSERT INTO "event" VALUES(1,1796011360702,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1796011360702,'token.created',1,'alice','init','controlplane','','f0c3a8ab37ac8022','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1796011360702,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1796011360702,'token.created',1,'bob','init','controlplane','','175694d2377707e0','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1796011360702,'token.created',1,'','init','controlplane','','60cf2b4574d3a54c','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1796011360798,'region.created',1,'','60cf2b4574d3a54c','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796011360801,'node_pool.set',1,'','60cf2b4574d3a54c','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796011360810,'registry.set',1,'','60cf2b4574d3a54c','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796011360812,'account.created',1,'carol','60cf2b4574d3a54c','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1796011360812,'token.created',1,'carol','60cf2b4574d3a54c','operator','127.0.0.1','ebbb09a813b5cd0c','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1796011360815,'account.created',1,'dora','60cf2b4574d3a54c','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1796011360815,'token.created',1,'dora','60cf2b4574d3a54c','operator','127.0.0.1','3148c16d8ad70b0b','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1796011360819,'account.changed',1,'alice','60cf2b4574d3a54c','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1796011360821,'account.removed',1,'dora','60cf2b4574d3a54c','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796011360829,'application.created',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796011360836,'tag.enabled',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796011360845,'tag.enabled',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1796011360852,'token.created',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','80891e6de0df3f60','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827547360852}');
INSERT INTO "event" VALUES(19,1796011360854,'token.created',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','b88d204e692fad98','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1796011360856,'token.revoked',1,'alice','60cf2b4574d3a54c','operator','127.0.0.1','b88d204e692fad98','{"with": "b88d204e692fad98"}');
INSERT INTO "event" VALUES(21,1796011360859,'session.starting',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(22,1796011360864,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(23,1796011360864,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796011360863, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(24,1796011360869,'session.starting',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(25,1796011360873,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(26,1796011360873,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796011360872, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(27,1796011360875,'session.starting',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(28,1796011360879,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(29,1796011360879,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": 1796011360878, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(30,1796011360883,'session.stop_requested',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}}');
INSERT INTO "event" VALUES(31,1796011360887,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(32,1796011360891,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(33,1796011360899,'session.starting',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}}');
INSERT INTO "event" VALUES(34,1796011362907,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1796011362910,'agent.token_created',1,'','60cf2b4574d3a54c','operator','127.0.0.1','71ab69f993657783','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1796011362918,'agent.enrolled',1,'','71ab69f993657783','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "1fa82a19a569ff66ddd67df99168c4e3cd89d0c5"}');
INSERT INTO "event" VALUES(37,1796011362926,'agent.token_created',1,'','60cf2b4574d3a54c','operator','127.0.0.1','a5f6f996e8ee0cfe','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1796011362928,'agent.enrolled',1,'','a5f6f996e8ee0cfe','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "77467e8e21013ac8c78ae493d177b2bc822fcc91"}');
INSERT INTO "event" VALUES(39,1796011362933,'agent.token_created',1,'','60cf2b4574d3a54c','operator','127.0.0.1','f2bd51e071a4d35d','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796011362936,'agent.enrolled',1,'','f2bd51e071a4d35d','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "6eb49e793fb629bfa7c09aab7790385eb06cb1f4"}');
INSERT INTO "event" VALUES(41,1796011362940,'agent.revoked',1,'','60cf2b4574d3a54c','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1796011362944,'agent.removed',1,'','60cf2b4574d3a54c','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1796011362947,'agent.token_created',1,'','60cf2b4574d3a54c','operator','127.0.0.1','e66905075c35740a','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796011362951,'warm_pool.set',1,'alice','f0c3a8ab37ac8022','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
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
INSERT INTO "image" VALUES(1,'127.0.0.1:32911/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:32911/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796011360728);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796011360881);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796011360881);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:32911','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'67414141414142724450566756497256537538676C6879624C5A3762486242434D36446D59415A705339616F70734567434E523778317845334F724F4E4A3746306B70304C4C354753567167456474636B453232376769475770497141535262594C54317766754732612D5146323631325F6A356132303D','[]',1,'');
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
    draining INTEGER NOT NULL DEFAULT 0,
    most_players INTEGER NOT NULL DEFAULT 0,
    earlier_players TEXT NOT NULL DEFAULT '[]',
    UNIQUE (account, id)
) STRICT;
INSERT INTO "session" VALUES(1,'alice','match ü','7e6f1598-97e1-457b-af59-116321b5e2b6','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796011360859,1796011360863,NULL,NULL,NULL,NULL,'',0,NULL,1796011360863,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','a630b451-7f7c-4b47-aa43-67450ebd8466','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796011360869,1796011360872,1796011360883,1796011360886,'stopped',0,'',0,NULL,1796011360872,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','dea03f53-4090-468a-b2d0-dfd4574b6db0','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796011360875,1796011360878,NULL,1796011360889,'exited',0,'',0,NULL,1796011360878,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('2d44dd9b-1333-4519-8c70-fa50d9597337','a0','unanswered',1796011362903,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:32911/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:32911/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('f0c3a8ab37ac8022','alice','initial',X'946D9C71EDE908F8877AD23AD12DFE0B5E010C1F7D0360377B4D63D66755B6CA','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796011360702,NULL,NULL,1796011360828,'127.0.0.1');
INSERT INTO "token" VALUES('175694d2377707e0','bob','initial',X'B6748355B99FE431C42B337A6452ACDB220C0CC91F9FD7C0FB335730E6E426B6','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796011360702,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('60cf2b4574d3a54c',NULL,'initial',X'35C998015A11B89F46BBD6EBFC0A58EC35F4789738AE3C718690D0363FC31E3E','["operator:read", "operator:write"]',NULL,1796011360702,NULL,NULL,1796011360796,'127.0.0.1');
INSERT INTO "token" VALUES('ebbb09a813b5cd0c','carol','initial',X'9E944724746A8D02C56C7FC56C0514F655CA21B88ED85BC74A061407A1FDFCED','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1796011360812,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('80891e6de0df3f60','alice','reader',X'D3FD707D54ACDBC53FD83D0AAAF845670B5E93A3B70D39A19EB272F3A7C9C91E','["session:read"]','f0c3a8ab37ac8022',1796011360852,1827547360852,NULL,NULL,NULL);
INSERT INTO "token" VALUES('b88d204e692fad98','alice','gone',X'6B9F82ECBED66E85F228B94AC502F56FC16D02A9CD67008291F1435BAC811ACF','["session:read"]','f0c3a8ab37ac8022',1796011360854,NULL,1796011360856,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','d9dbe0ef-3d44-459b-bffa-8ca07e87ce97',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
