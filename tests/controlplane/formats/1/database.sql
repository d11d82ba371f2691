BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1796015973917,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1796015973917,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1796015974492,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpnfy_nyjf/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1796015974398,0,NULL,'b4e36f52-7008-4c37-a8f5-be2f39015aa5',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'f3957f54-4b15-4498-a12a-4063e812416c','e4eeb31c436dbd4813de70110b167d8a902c6d1',1798607976000,'3524b68863e6a93af56deb02adbf5f9d07db28a92d704e94f3112fddd78fafb5',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'4d271712-8ba3-4c61-acb8-7b352d7e840b','5df407b58944568ea75c744877fd74e5b75348e6',1798607976000,'3524b68863e6a93af56deb02adbf5f9d07db28a92d704e94f3112fddd78fafb5',0,1796015976677,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1796015976683,NULL,NULL,NULL,'3524b68863e6a93af56deb02adbf5f9d07db28a92d704e94f3112fddd78fafb5',0,NULL,0,0,NULL,NULL,0,NULL,'',0,0,0,NULL,0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1796015974515);
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
INSERT INTO "enrolment_token" VALUES('db44a2820f304207',X'666AFA7939A25AB92CBE9EF84F8B7462F3FD38F91E33D7996AD3259627D81568','local','default',NULL,1796016876639,1796015976646);
INSERT INTO "enrolment_token" VALUES('1a821e6e0e2e82f6',X'FF429563191E366B7CD73C5E1630FE9035B68C5E0DC19216C701467B474EFD73','local','default',NULL,1796016876658,1796015976660);
INSERT INTO "enrolment_token" VALUES('8db75e0cd54cf015',X'019093101F957CD6CA742454DD1203E6A55AAC91F0FAC45F9F568E98E276599E','local','default',NULL,1796016876665,1796015976671);
INSERT INTO "enrolment_token" VALUES('2512f3b8f8a00749',X'E08F690EAA60B8B27E5F6033B066AE920948DF5862D9D8CB2FC2F2D0834809D0','local','default',NULL,1796016876688,NULL);
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
INSERT INTO "event" VALUES(1,1796015973917,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(2,1796015973917,'token.created',1,'alice','init','controlplane','','83fa7df89e837085','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(3,1796015973917,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(4,1796015973917,'token.created',1,'bob','init','controlplane','','bd4c5edf106b2e68','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(5,1796015973917,'token.created',1,'','init','controlplane','','6e617834833b86c9','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expires": null}');
INSERT INTO "event" VALUES(6,1796015974406,'region.created',1,'','6e617834833b86c9','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1796015974409,'node_pool.set',1,'','6e617834833b86c9','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1796015974475,'registry.set',1,'','6e617834833b86c9','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1796015974492,'account.created',1,'carol','6e617834833b86c9','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(10,1796015974492,'token.created',1,'carol','6e617834833b86c9','operator','127.0.0.1','171f56fb72ac974c','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(11,1796015974495,'account.created',1,'dora','6e617834833b86c9','operator','127.0.0.1','dora','{"quota": {"sessions": null, "cpu": null, "ram": null}}');
INSERT INTO "event" VALUES(12,1796015974495,'token.created',1,'dora','6e617834833b86c9','operator','127.0.0.1','732ebdc8c0d16595','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"], "expires": null}');
INSERT INTO "event" VALUES(13,1796015974497,'account.changed',1,'alice','6e617834833b86c9','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "cpu": 40.5, "ram": null}}');
INSERT INTO "event" VALUES(14,1796015974500,'account.removed',1,'dora','6e617834833b86c9','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1796015974515,'application.created',1,'alice','83fa7df89e837085','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1796015974524,'tag.enabled',1,'alice','83fa7df89e837085','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1796015974534,'tag.pulled',1,'alice','a0','controlplane','','game:v1','{"agent": "a0", "region": "local", "digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(18,1796015974534,'tag.available',1,'alice','controlplane','controlplane','','game:v1','{"region": "local", "digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(19,1796015974535,'tag.enabled',1,'alice','83fa7df89e837085','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(20,1796015974548,'tag.pulled',1,'alice','a0','controlplane','','game:v2','{"agent": "a0", "region": "local", "digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(21,1796015974548,'tag.available',1,'alice','controlplane','controlplane','','game:v2','{"region": "local", "digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(22,1796015974550,'token.created',1,'alice','83fa7df89e837085','account','127.0.0.1','93949a77928cf52e','{"name": "reader", "scopes": ["session:read"], "expires": 1827551974550}');
INSERT INTO "event" VALUES(23,1796015974553,'token.created',1,'alice','83fa7df89e837085','account','127.0.0.1','90c05a64fd8dd923','{"name": "gone", "scopes": ["session:read"], "expires": null}');
INSERT INTO "event" VALUES(24,1796015974557,'token.revoked',1,'alice','6e617834833b86c9','operator','127.0.0.1','90c05a64fd8dd923','{"with": "90c05a64fd8dd923"}');
INSERT INTO "event" VALUES(25,1796015974563,'session.starting',1,'alice','83fa7df89e837085','account','127.0.0.1','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(26,1796015974569,'session.running',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(27,1796015974569,'session.ready',1,'alice','a0','controlplane','','match ü','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796015974568, "ports": {"7777/udp": 20000, "7778/tcp": 20001}}');
INSERT INTO "event" VALUES(28,1796015974576,'session.starting',1,'alice','83fa7df89e837085','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(29,1796015974580,'session.running',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(30,1796015974580,'session.ready',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796015974579, "ports": {"7777/udp": 20010, "7778/tcp": 20011}}');
INSERT INTO "event" VALUES(31,1796015974584,'session.starting',1,'alice','83fa7df89e837085','account','127.0.0.1','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(32,1796015974589,'session.running',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(33,1796015974589,'session.ready',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": 1796015974588, "ports": {"7777/udp": 20020, "7778/tcp": 20021}}');
INSERT INTO "event" VALUES(34,1796015974597,'session.stop_requested',1,'alice','83fa7df89e837085','account','127.0.0.1','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null}');
INSERT INTO "event" VALUES(35,1796015974600,'session.ended',1,'alice','a0','controlplane','','stopped','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": ["stopping"], "reason": "stopped", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(36,1796015974613,'session.ended',1,'alice','a0','controlplane','','fails','{"image": "game", "tag": "v2", "location": "local", "labels": {"mode": "duel"}, "traceparent": null, "host": "192.0.2.1", "hostTime": null, "skipped": [], "reason": "exited", "exitCode": 0, "forced": false}');
INSERT INTO "event" VALUES(37,1796015974618,'session.starting',1,'alice','83fa7df89e837085','account','127.0.0.1','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null}');
INSERT INTO "event" VALUES(38,1796015976635,'session.start_failed',1,'alice','controlplane','controlplane','','unknown','{"image": "game", "tag": "v2", "location": "local", "labels": {}, "traceparent": null, "why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(39,1796015976639,'agent.token_created',1,'','6e617834833b86c9','operator','127.0.0.1','db44a2820f304207','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1796015976646,'agent.enrolled',1,'','db44a2820f304207','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "e4eeb31c436dbd4813de70110b167d8a902c6d1"}');
INSERT INTO "event" VALUES(41,1796015976658,'agent.token_created',1,'','6e617834833b86c9','operator','127.0.0.1','1a821e6e0e2e82f6','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(42,1796015976660,'agent.enrolled',1,'','1a821e6e0e2e82f6','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "5df407b58944568ea75c744877fd74e5b75348e6"}');
INSERT INTO "event" VALUES(43,1796015976665,'agent.token_created',1,'','6e617834833b86c9','operator','127.0.0.1','8db75e0cd54cf015','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1796015976671,'agent.enrolled',1,'','8db75e0cd54cf015','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "6f7efd18c3a0261b693a6a85fa9f766c72e7f339"}');
INSERT INTO "event" VALUES(45,1796015976677,'agent.revoked',1,'','6e617834833b86c9','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(46,1796015976683,'agent.removed',1,'','6e617834833b86c9','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(47,1796015976688,'agent.token_created',1,'','6e617834833b86c9','operator','127.0.0.1','2512f3b8f8a00749','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(48,1796015976692,'webhook.created',1,'alice','83fa7df89e837085','account','127.0.0.1','383ee3c55af40208','{"host": "127.0.0.1:9"}');
INSERT INTO "event" VALUES(49,1796015976700,'token.created',1,'alice','83fa7df89e837085','account','127.0.0.1','f256b439e4064c8b','{"name": "delivered", "scopes": ["session:read"], "expires": null}');
INSERT INTO "event" VALUES(50,1796015976711,'warm_pool.set',1,'alice','83fa7df89e837085','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
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
INSERT INTO "event_start" VALUES('dora','SESSIONS',14);
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:33187/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:33187/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1796015974021);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1796015974594);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1796015974594);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:33187','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'67414141414142724451646D6C384A394E74586748715465693779734C714E4436576A71716D2D7A4548706C7638633470426156525F6576464E634C7535496235414D3669545934364F655A43386D4536507744415551684544616658354F4A75337A706353634A36664566474557476538334C4969593D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','e6cfbb8e-6be5-45b0-ba30-4bbb0840beab','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1796015974563,1796015974568,NULL,NULL,NULL,NULL,'',0,NULL,1796015974568,0,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','dc3e8647-c52a-4c0e-8f05-9971e0e84e81','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1796015974576,1796015974579,1796015974597,1796015974599,'stopped',0,'',0,NULL,1796015974579,0,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','c4940e55-6d69-487d-8805-cbfc398a9cdc','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1796015974584,1796015974588,NULL,1796015974608,'exited',0,'',0,NULL,1796015974588,0,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('65a5df86-dde6-4d82-9913-9cc6b25b2b94','a0','unanswered',1796015976632,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:33187/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:33187/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('83fa7df89e837085','alice','initial',X'587496166C7D174EC83B995D7AA468A65E047A34429C226D1DF81D5ABA85B1E1','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796015973917,NULL,NULL,1796015974504,'127.0.0.1');
INSERT INTO "token" VALUES('bd4c5edf106b2e68','bob','initial',X'96E8DA05EB682B397431A2CFCCA8FDF6104C9CFE154EB3DC48114DFD04190624','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796015973917,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('6e617834833b86c9',NULL,'initial',X'C10902CD0F9228FC5F1AA1AB75F9ACD224F5EF981D7AE5D1FF8A4696BFFD2C7C','["operator:read", "operator:write"]',NULL,1796015973917,NULL,NULL,1796015974405,'127.0.0.1');
INSERT INTO "token" VALUES('171f56fb72ac974c','carol','initial',X'85F880A9F4C2762395E2CA6096A03B3CC153F9B22C081F2BDAD693A242337A38','["application:read", "application:write", "artifact:read", "event:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write", "webhook:read", "webhook:write"]',NULL,1796015974492,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('93949a77928cf52e','alice','reader',X'732BA56F191C1CE6A7E8E6F504D462A5644CBA3F4A8030507F0414FC4B298D4C','["session:read"]','83fa7df89e837085',1796015974550,1827551974550,NULL,NULL,NULL);
INSERT INTO "token" VALUES('90c05a64fd8dd923','alice','gone',X'DA99E27F057E31E6C3DD319A5FB8E525873B25744906229121AA487784487E10','["session:read"]','83fa7df89e837085',1796015974553,NULL,1796015974557,NULL,NULL);
INSERT INTO "token" VALUES('f256b439e4064c8b','alice','delivered',X'3271433B3D45FB2B00EEA9C129221992F710A068B094AF86999166FA32623933','["session:read"]','83fa7df89e837085',1796015976700,NULL,NULL,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','31579794-f523-4979-a68b-7a2f663de0e7',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','',NULL);
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
INSERT INTO "webhook" VALUES('383ee3c55af40208','alice','https://127.0.0.1:9/','é','{"kinds": ["token.*"], "image": "", "location": "", "labels": {}}',1,NULL,1,X'67414141414142724451646F464C434F597839627349554D366363705643647265766B72726332485433616F5F3539396C6D3139566277364D744C48797A664C55464A445A746D377341446139704555504B672D6939503876356475485355305F6A48507651436E3535684F4B6C6369514C594335396F646959654B50557A2D6B2D43596B59307779475232354569594A7570496B79766B755761544E53633777424A3678376E7A6B4F6A42445946514250674B375A773D',NULL,NULL,1796015976692);
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
INSERT INTO "webhook_attempt" VALUES('383ee3c55af40208',1,'1-49','token.created',1796015976706,0,'unreachable',NULL,'it cannot be connected to','');
CREATE TABLE webhook_progress (
    webhook TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_ms INTEGER,
    gap TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_progress" VALUES('383ee3c55af40208',1,49,1,1796015976707,NULL);
CREATE TABLE webhook_retry (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "webhook_retry" VALUES('383ee3c55af40208',49,1,1796015976707,1796015982050);
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
CREATE INDEX tag_on_host_by_agent ON tag_on_host(agent);
CREATE INDEX webhook_by_account ON webhook(account, created_ms);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
