BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795999154723,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795999154723,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795999156386,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpxttjg5jf/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795999156018,0,NULL,'ac5be79e-0812-4c33-ac6c-bc1a8019f4fe',0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'0e526ce2-1d7d-4387-9ca2-baedff4fc835','734e1a9138cf2fbce9c63f2701843f4b78571e59',1798591160000,'17113c105ddc497b1d2c66f1abc1e3daf29695b4d51657845b731c23517b2a86',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'7782e5c3-c04c-476c-a4e9-74123455b27d','4740004531eacb3e2a5b33de576eff50277d85ae',1798591160000,'17113c105ddc497b1d2c66f1abc1e3daf29695b4d51657845b731c23517b2a86',0,1795999161419,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795999161531,NULL,NULL,NULL,'17113c105ddc497b1d2c66f1abc1e3daf29695b4d51657845b731c23517b2a86',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0, "same": false}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0, "same": false}]',0,0,0,'',0,'[]',0,0,1795999156831);
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
INSERT INTO "enrolment_token" VALUES('3010c16af4e8337d',X'02CF2FE369F39D27EA0F396129370935B938876C3A41861BCCF7573324E5D0C6','local','default',NULL,1796000060476,1795999160653);
INSERT INTO "enrolment_token" VALUES('2d7a8da1dd5715f0',X'13AF93FB305EA5C5D49380F01C27C28290E7F9C12C772DF193278CD9A77873C1','local','default',NULL,1796000060867,1795999160910);
INSERT INTO "enrolment_token" VALUES('cdbe720282a6dfb3',X'DF618C9F36D40A87221D14E4A2897B83D9E02B3ABC548D6C976A66A0B8FA647A','local','default',NULL,1796000061138,1795999161242);
INSERT INTO "enrolment_token" VALUES('643d2ba92b0ab907',X'896E3D5417CF1195A61949832285DF71A859919DEA79CD4A9EE3C0ED7ED6D3AC','local','default',NULL,1796000061612,NULL);
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
INSERT INTO "event" VALUES(1,1795999154723,'account.created',1,'alice','init','controlplane','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795999154723,'token.created',1,'alice','init','controlplane','','b64d9ccd7f61cefd','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795999154723,'account.created',1,'bob','init','controlplane','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795999154723,'token.created',1,'bob','init','controlplane','','616eff07c9133ef3','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795999154723,'token.created',1,'','init','controlplane','','8098999bef714749','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795999156142,'region.created',1,'','8098999bef714749','operator','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795999156187,'node_pool.set',1,'','8098999bef714749','operator','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1795999156305,'registry.set',1,'','8098999bef714749','operator','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795999156386,'account.created',1,'carol','8098999bef714749','operator','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795999156386,'token.created',1,'carol','8098999bef714749','operator','127.0.0.1','f3bd198728c4ff09','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795999156477,'account.created',1,'dora','8098999bef714749','operator','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795999156477,'token.created',1,'dora','8098999bef714749','operator','127.0.0.1','cc1f0b265c369410','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795999156548,'account.changed',1,'alice','8098999bef714749','operator','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795999156588,'account.removed',1,'dora','8098999bef714749','operator','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795999156831,'application.created',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795999156994,'tag.enabled',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795999157132,'tag.enabled',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795999157162,'token.created',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','b0455affe9044bc3','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827535157162}');
INSERT INTO "event" VALUES(19,1795999157185,'token.created',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','737a747a35e822d1','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795999157218,'token.revoked',1,'alice','8098999bef714749','operator','127.0.0.1','737a747a35e822d1','{"with": "737a747a35e822d1"}');
INSERT INTO "event" VALUES(21,1795999157556,'session.reserved',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795999157677,'session.running',1,'alice','a0','controlplane','','match ü','{"host": "192.0.2.1", "skipped": []}');
INSERT INTO "event" VALUES(23,1795999157677,'session.ready',1,'alice','a0','controlplane','','match ü','{"host": "192.0.2.1", "readyMs": 1795999157659}');
INSERT INTO "event" VALUES(24,1795999157848,'session.reserved',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795999158039,'session.running',1,'alice','a0','controlplane','','stopped','{"host": "192.0.2.1", "skipped": []}');
INSERT INTO "event" VALUES(26,1795999158039,'session.ready',1,'alice','a0','controlplane','','stopped','{"host": "192.0.2.1", "readyMs": 1795999157999}');
INSERT INTO "event" VALUES(27,1795999158139,'session.reserved',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(28,1795999158227,'session.running',1,'alice','a0','controlplane','','fails','{"host": "192.0.2.1", "skipped": []}');
INSERT INTO "event" VALUES(29,1795999158227,'session.ready',1,'alice','a0','controlplane','','fails','{"host": "192.0.2.1", "readyMs": 1795999158211}');
INSERT INTO "event" VALUES(30,1795999158310,'session.stop',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(31,1795999158322,'session.ended',1,'alice','a0','controlplane','','stopped','{"reason": "stopped", "exitCode": 0, "host": "192.0.2.1"}');
INSERT INTO "event" VALUES(32,1795999158330,'session.ended',1,'alice','a0','controlplane','','fails','{"reason": "exited", "exitCode": 0, "host": "192.0.2.1"}');
INSERT INTO "event" VALUES(33,1795999158343,'session.reserved',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(34,1795999160408,'session.not_started',1,'alice','controlplane','controlplane','','unknown','{"why": "hosts in the region do not answer: cannot start in ''local'': the hosts do not answer in time"}');
INSERT INTO "event" VALUES(35,1795999160476,'agent.token_created',1,'','8098999bef714749','operator','127.0.0.1','3010c16af4e8337d','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(36,1795999160653,'agent.enrolled',1,'','3010c16af4e8337d','controlplane','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "734e1a9138cf2fbce9c63f2701843f4b78571e59"}');
INSERT INTO "event" VALUES(37,1795999160867,'agent.token_created',1,'','8098999bef714749','operator','127.0.0.1','2d7a8da1dd5715f0','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795999160910,'agent.enrolled',1,'','2d7a8da1dd5715f0','controlplane','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "4740004531eacb3e2a5b33de576eff50277d85ae"}');
INSERT INTO "event" VALUES(39,1795999161138,'agent.token_created',1,'','8098999bef714749','operator','127.0.0.1','cdbe720282a6dfb3','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(40,1795999161242,'agent.enrolled',1,'','cdbe720282a6dfb3','controlplane','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "7aa1be954fbf752a74a7b39a21f9e7b2e104ab24"}');
INSERT INTO "event" VALUES(41,1795999161419,'agent.revoked',1,'','8098999bef714749','operator','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(42,1795999161531,'agent.removed',1,'','8098999bef714749','operator','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(43,1795999161612,'agent.token_created',1,'','8098999bef714749','operator','127.0.0.1','643d2ba92b0ab907','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(44,1795999161683,'warm_pool.set',1,'alice','b64d9ccd7f61cefd','account','127.0.0.1','game/local','{"size": 3, "enabled": true}');
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
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:38907/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:38907/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1795999155022);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1795999158295);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1795999158295);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:38907','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272444D57304638782D7A2D6F4637394D6B4C4C336B58443737355332796B5434486475357473756B4D4E31374B434C4E50547A464C684D71752D715F6C71492D78557964574837414F717149654A6B4445416A517A396548514452674235564C653269334E72667150617733737A73343D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','a85e30c2-2ceb-49c4-aa93-caefe0dbdd9e','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1795999157556,1795999157658,NULL,NULL,NULL,NULL,'',0,NULL,1795999157659,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','045e2d29-7cd9-4c06-bba2-3ae288d17264','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795999157848,1795999157959,1795999158310,1795999158321,'stopped',0,'',0,NULL,1795999157999,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','5a32d43e-70a6-4fd6-84b3-22a17294634b','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795999158139,1795999158211,NULL,1795999158328,'exited',0,'',0,NULL,1795999158211,0,'[]');
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('3b3d4da5-4069-456b-8b91-738a3a99c5b0','a0','unanswered',1795999160354,NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:38907/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:38907/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('b64d9ccd7f61cefd','alice','initial',X'7256AC625681F60DD06FCB33765DFFCA8A1C3B5CB72162C28CEDC6E0D2B7474E','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795999154723,NULL,NULL,1795999156779,'127.0.0.1');
INSERT INTO "token" VALUES('616eff07c9133ef3','bob','initial',X'914E2846C2F7FF3A679AF9FDCD6478BAA1E2444A9036FE60539DE5ABEB828813','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795999154723,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('8098999bef714749',NULL,'initial',X'ED60B36DF3471CCBC147B191F2E9315C20DEDB8902BA7FE48163DB1C26D1A282','["operator:read", "operator:write"]',NULL,1795999154723,NULL,NULL,1795999156110,'127.0.0.1');
INSERT INTO "token" VALUES('f3bd198728c4ff09','carol','initial',X'5E9475EF3B229DC4F363247FF66F57C46992C925A61C50F2E1ED6918B52296E8','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795999156386,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('b0455affe9044bc3','alice','reader',X'495D98480D9CB2A3AD9D373F58A535574DA5BADC92811671F7722382E358B49D','["session:read"]','b64d9ccd7f61cefd',1795999157162,1827535157162,NULL,NULL,NULL);
INSERT INTO "token" VALUES('737a747a35e822d1','alice','gone',X'A0A7E7F3A0C9CCE049F7FAA548BFF52760EB228BB25915DE8DF0FB925D3AED9A','["session:read"]','b64d9ccd7f61cefd',1795999157185,NULL,1795999157218,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','33a12e0e-8113-4626-83e9-dc19059c08e8',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
