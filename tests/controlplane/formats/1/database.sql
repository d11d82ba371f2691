BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795901874471,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795901874471,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795901874698,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpg3c0b_dm/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795901874651,0,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'4a39f65a-18bc-4543-8e56-09665d37bd30','775bbd02ab7d6f6e63f7e81ffabbbbafa3839c98',1798493877000,'5e92dc4428f6176653c77eaef1f5f59b340758be6d2bea000fb3a68b8b1b3fdf',0,NULL,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'b50dcb93-bac0-4ef4-b997-2fca0c79816d','7ed4c86b6b6b3e675b81337aa25fc78445eb5b3c',1798493877000,'5e92dc4428f6176653c77eaef1f5f59b340758be6d2bea000fb3a68b8b1b3fdf',0,1795901877061,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795901877070,NULL,NULL,NULL,'5e92dc4428f6176653c77eaef1f5f59b340758be6d2bea000fb3a68b8b1b3fdf',0,NULL,0,0,NULL,NULL,0,NULL);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,1795901874727);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('c18acdfb29263503',X'3B8A6FE20E5F810A5F9B44CA00E121075BF9D3AB2B641CE222870D8A2D8AB9BB','local','default',NULL,1795902777006,1795901877021);
INSERT INTO "enrolment_token" VALUES('b4bfc87d0ecc46c6',X'9FB2F8D36D9D99331F8242690AB65A5D2E1FD6477CA47C577F6FBAB25D347C74','local','default',NULL,1795902777032,1795901877037);
INSERT INTO "enrolment_token" VALUES('944751fb59f97ecd',X'588A73E9D88F7A16A64867D30DFA215C73B42657888EB1C07B2E4E41A552CC8D','local','default',NULL,1795902777047,1795901877052);
INSERT INTO "enrolment_token" VALUES('033228b0cfd6e1a9',X'179BC4B95B47A0B12F527BF7530587B55AB549F532B74DDCF104FF87D2170E6F','local','default',NULL,1795902777076,NULL);
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
INSERT INTO "event" VALUES(1,1795901874471,'account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795901874471,'token.created','alice','init','','9be0d469acc50ea4','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795901874471,'account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795901874471,'token.created','bob','init','','38c614bbb2e29df6','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795901874471,'token.created','','init','','8192d963d2f50110','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795901874675,'region.created','','8192d963d2f50110','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795901874681,'node_pool.set','','8192d963d2f50110','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false}');
INSERT INTO "event" VALUES(8,1795901874691,'registry.set','','8192d963d2f50110','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795901874698,'account.created','carol','8192d963d2f50110','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795901874698,'token.created','carol','8192d963d2f50110','127.0.0.1','74be1f9706173deb','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795901874705,'account.created','dora','8192d963d2f50110','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795901874705,'token.created','dora','8192d963d2f50110','127.0.0.1','68ff128b12509a7d','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795901874711,'account.changed','alice','8192d963d2f50110','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795901874715,'account.removed','dora','8192d963d2f50110','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795901874727,'application.created','alice','9be0d469acc50ea4','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795901874737,'tag.enabled','alice','9be0d469acc50ea4','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795901874876,'tag.enabled','alice','9be0d469acc50ea4','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795901874887,'token.created','alice','9be0d469acc50ea4','127.0.0.1','81ffc7929dd28742','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827437874887}');
INSERT INTO "event" VALUES(19,1795901874892,'token.created','alice','9be0d469acc50ea4','127.0.0.1','d1e798d3b3174ae6','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795901874896,'token.revoked','alice','8192d963d2f50110','127.0.0.1','d1e798d3b3174ae6','{"with": "d1e798d3b3174ae6"}');
INSERT INTO "event" VALUES(21,1795901874903,'session.reserved','alice','9be0d469acc50ea4','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795901874920,'session.reserved','alice','9be0d469acc50ea4','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795901874934,'session.reserved','alice','9be0d469acc50ea4','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795901874952,'session.stop','alice','9be0d469acc50ea4','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795901874957,'session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795901874972,'session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795901874986,'session.reserved','alice','9be0d469acc50ea4','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795901876997,'session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has capacity"}');
INSERT INTO "event" VALUES(29,1795901877006,'agent.token_created','','8192d963d2f50110','127.0.0.1','c18acdfb29263503','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795901877021,'agent.enrolled','','c18acdfb29263503','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "775bbd02ab7d6f6e63f7e81ffabbbbafa3839c98"}');
INSERT INTO "event" VALUES(31,1795901877032,'agent.token_created','','8192d963d2f50110','127.0.0.1','b4bfc87d0ecc46c6','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795901877037,'agent.enrolled','','b4bfc87d0ecc46c6','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "7ed4c86b6b6b3e675b81337aa25fc78445eb5b3c"}');
INSERT INTO "event" VALUES(33,1795901877047,'agent.token_created','','8192d963d2f50110','127.0.0.1','944751fb59f97ecd','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795901877052,'agent.enrolled','','944751fb59f97ecd','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "4f1032cfecf63fcc05371bf684ef79e9a604186f"}');
INSERT INTO "event" VALUES(35,1795901877061,'agent.revoked','','8192d963d2f50110','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795901877070,'agent.removed','','8192d963d2f50110','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795901877076,'agent.token_created','','8192d963d2f50110','127.0.0.1','033228b0cfd6e1a9','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795901877082,'warm_pool.set','alice','9be0d469acc50ea4','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    PRIMARY KEY (reference, account)
) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:33857/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES('127.0.0.1:33857/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1795901874504);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:33857','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'674141414141427243306D7956616830514A67463042794F572D2D5F7A4E575A31516257443351467650645459474E324F4A4C70416343584558336E4D776778586F656E6459446137556971754C70486A44675A7474334F657746612D4F364172626D7A447566644D426F4F474C576B556255334656513D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','05efe090-0636-421a-81e5-672ce5379981','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',NULL,1000000000,268435456,2,1795901874903,1795901874908,NULL,NULL,NULL,NULL,'',0);
INSERT INTO "session" VALUES(2,'alice','stopped','68b11b89-477e-4007-95de-fbd3d0949a3f','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795901874920,1795901874925,1795901874952,1795901874956,'stopped',0,'',0);
INSERT INTO "session" VALUES(3,'alice','fails','b4027ac2-6f8b-4517-8ab6-618912b3a9dd','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795901874934,1795901874939,NULL,1795901874965,'exited',0,'',0);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:33857/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:33857/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',2);
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
INSERT INTO "token" VALUES('9be0d469acc50ea4','alice','initial',X'17067D149A64E7C127C8910378F868D40B041819DC21A1B166E8B3DF9D6AB93F','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795901874471,NULL,NULL,1795901874724,'127.0.0.1');
INSERT INTO "token" VALUES('38c614bbb2e29df6','bob','initial',X'DD8FBB38DC32901E826AD6250CD3062F2B22555216A18F35F455373A1683219A','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795901874471,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('8192d963d2f50110',NULL,'initial',X'7E224F261E47F77BE94C7E4F0FA14333F98113A161790009021E35E7E4B382E0','["operator:read", "operator:write"]',NULL,1795901874471,NULL,NULL,1795901874673,'127.0.0.1');
INSERT INTO "token" VALUES('74be1f9706173deb','carol','initial',X'3ECCB7E4D478B5FBC4DF0A8D8369DDE98EDEE7CBE100586C34A4FED050541CAF','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795901874698,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('81ffc7929dd28742','alice','reader',X'B96849CA8BBE1C417F7F1D2613C7690B9158CBE5D39E1B499697E5F6B94F2464','["session:read"]','9be0d469acc50ea4',1795901874887,1827437874887,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d1e798d3b3174ae6','alice','gone',X'669624390BC0FA7DFD135993B740D9C7013CC0E0F66C4A3E1A507EE916EFE665','["session:read"]','9be0d469acc50ea4',1795901874892,NULL,1795901874896,NULL,NULL);
CREATE TABLE unanswered (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "unanswered" VALUES('0352402b-c6a1-4d57-9cbc-626356677bfc','a0',1795901876994,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','630441cc-b03d-4960-9602-67bb0c21acf2',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
