BEGIN TRANSACTION;
CREATE TABLE unanswered (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "unanswered" VALUES('636150e1-4c90-4c8e-8acc-876ad5595c19','a0',1795415913852,NULL);
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795415911225,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795415911231,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795415911644,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp8vlvxj3j/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795415911407,0,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'44b78258-ab43-4dde-b938-d68c713d8603','143da7224675d7605126ed2fea3bde1caa0e3f80',1798007913000,'a10de0b0cbb2b5d4da74e8dda0978b44efd2a6e71d3a75c4c7c98670650dedb9',0,NULL,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'a3138fd2-737b-4d20-aa4f-aa37e3f270d5','12bdf2d2a076add07a2073cd0e15b03a2b12ff0f',1798007913000,'a10de0b0cbb2b5d4da74e8dda0978b44efd2a6e71d3a75c4c7c98670650dedb9',0,1795415913898,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795415913901,NULL,NULL,NULL,'a10de0b0cbb2b5d4da74e8dda0978b44efd2a6e71d3a75c4c7c98670650dedb9',0,NULL,0,0,NULL,NULL,0,NULL);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,1795415911688);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('e6fef5f14f27f8d8',X'173A5E82FF7F08597316194D77BAD3DA6B5445251F13AE5CE7DF720B2F876172','local','default',NULL,1795416813863,1795415913871);
INSERT INTO "enrolment_token" VALUES('04be7e0f4d698bfb',X'98E02CE3E1296FBA5D0B27AE72B0D8AD14E6E95C9909C9E6069ED9AD2608CE2E','local','default',NULL,1795416813876,1795415913878);
INSERT INTO "enrolment_token" VALUES('e5e4d54f5448ed18',X'F066000ECC4968C39AAB36E63B4CAC1F678C5958EB1ED9A77BEBC308183A9CC3','local','default',NULL,1795416813887,1795415913890);
INSERT INTO "enrolment_token" VALUES('b4209e4faf8fd182',X'B44211774B4B63F7B4F9C9ED3B39F059D9D303D3699A34B114BF3F339206B636','local','default',NULL,1795416813903,NULL);
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
INSERT INTO "event" VALUES(1,1795415911225,'account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795415911225,'token.created','alice','init','','3642009f68847ecb','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795415911231,'account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795415911231,'token.created','bob','init','','adb08dc6ec2f4d65','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795415911233,'token.created','','init','','da7b697b96425a3e','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795415911456,'region.created','','da7b697b96425a3e','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795415911458,'node_pool.set','','da7b697b96425a3e','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false}');
INSERT INTO "event" VALUES(8,1795415911640,'registry.set','','da7b697b96425a3e','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795415911644,'account.created','carol','da7b697b96425a3e','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795415911644,'token.created','carol','da7b697b96425a3e','127.0.0.1','2314ff77ea7490b4','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795415911662,'account.created','dora','da7b697b96425a3e','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795415911662,'token.created','dora','da7b697b96425a3e','127.0.0.1','a82e80c0bfd7f7c6','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795415911666,'account.changed','alice','da7b697b96425a3e','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795415911669,'account.removed','dora','da7b697b96425a3e','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795415911688,'application.created','alice','3642009f68847ecb','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795415911692,'tag.enabled','alice','3642009f68847ecb','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795415911702,'tag.enabled','alice','3642009f68847ecb','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795415911715,'token.created','alice','3642009f68847ecb','127.0.0.1','1f759a017c7e8b41','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1826951911715}');
INSERT INTO "event" VALUES(19,1795415911728,'token.created','alice','3642009f68847ecb','127.0.0.1','b292781675cdcbb7','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795415911730,'token.revoked','alice','da7b697b96425a3e','127.0.0.1','b292781675cdcbb7','{"with": "b292781675cdcbb7"}');
INSERT INTO "event" VALUES(21,1795415911747,'session.reserved','alice','3642009f68847ecb','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795415911760,'session.reserved','alice','3642009f68847ecb','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795415911776,'session.reserved','alice','3642009f68847ecb','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795415911786,'session.stop','alice','3642009f68847ecb','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795415911789,'session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795415911793,'session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795415911848,'session.reserved','alice','3642009f68847ecb','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795415913855,'session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has room"}');
INSERT INTO "event" VALUES(29,1795415913863,'agent.token_created','','da7b697b96425a3e','127.0.0.1','e6fef5f14f27f8d8','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795415913871,'agent.enrolled','','e6fef5f14f27f8d8','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "143da7224675d7605126ed2fea3bde1caa0e3f80"}');
INSERT INTO "event" VALUES(31,1795415913876,'agent.token_created','','da7b697b96425a3e','127.0.0.1','04be7e0f4d698bfb','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795415913878,'agent.enrolled','','04be7e0f4d698bfb','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "12bdf2d2a076add07a2073cd0e15b03a2b12ff0f"}');
INSERT INTO "event" VALUES(33,1795415913887,'agent.token_created','','da7b697b96425a3e','127.0.0.1','e5e4d54f5448ed18','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795415913890,'agent.enrolled','','e5e4d54f5448ed18','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "45b75cb8f134ce351f56486a3a2d48484ad7c7fb"}');
INSERT INTO "event" VALUES(35,1795415913898,'agent.revoked','','da7b697b96425a3e','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795415913901,'agent.removed','','da7b697b96425a3e','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795415913903,'agent.token_created','','da7b697b96425a3e','127.0.0.1','b4209e4faf8fd182','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795415913905,'warm_pool.set','alice','3642009f68847ecb','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (reference TEXT PRIMARY KEY) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:36439/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18');
INSERT INTO "image" VALUES('127.0.0.1:36439/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365');
CREATE TABLE live_label (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES session(number) ON DELETE CASCADE,
    PRIMARY KEY (account, name, value, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "live_label" VALUES('alice','mode','duel',1);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:36439','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'67414141414142724139396E736573336244502D6E614C7659574F4475546B4B314B6952616F46484A305837616A764977436D6B4D716B6C55416D714D354947685A4C707465444179306E6B45414A304C6761473342526E67375A35715A515F49716F512D34676A4A72566D6D3163685245527445336F3D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','30834a77-5f05-40a4-96c3-ba9471ce7bb3','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',NULL,1000000000,268435456,2,1795415911738,1795415911752,NULL,NULL,NULL,NULL,'',0);
INSERT INTO "session" VALUES(2,'alice','stopped','bdb0f4f7-a151-4ba0-b529-69a3aece37c5','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795415911758,1795415911761,1795415911786,1795415911788,'stopped',0,'',0);
INSERT INTO "session" VALUES(3,'alice','fails','fa6f38aa-d7d8-4807-8560-75e987de490f','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795415911768,1795415911780,NULL,1795415911792,'exited',0,'',0);
CREATE TABLE tag (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    image TEXT NOT NULL,
    priority INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    PRIMARY KEY (account, application, name),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:36439/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',1,1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:36439/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',2,1);
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
INSERT INTO "token" VALUES('3642009f68847ecb','alice','initial',X'4BFB2C0B0606FE1E4B557D2B8C3997269759C4BE64FB2CE53CA0C8793D9A2BFC','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795415911225,NULL,NULL,1795415911682,'127.0.0.1');
INSERT INTO "token" VALUES('adb08dc6ec2f4d65','bob','initial',X'E051F70D33F3622763A58AED41861DB8B7DE3B0B313CD02957F762CFC7953988','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795415911231,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('da7b697b96425a3e',NULL,'initial',X'32B8706F0F64F4119A6E50406DF4E909BB08353AF1179E57BB1286D89C4A6DF8','["operator:read", "operator:write"]',NULL,1795415911233,NULL,NULL,1795415911446,'127.0.0.1');
INSERT INTO "token" VALUES('2314ff77ea7490b4','carol','initial',X'122CA3F57E03810ECB782A470E8528B60A4CD1D5F8D073D9B19C7F4743AC15CD','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795415911644,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('1f759a017c7e8b41','alice','reader',X'53668240BB09AB45B625BF9ADCF7A3D5CA94A49AF4397D583FE9B53E246843AC','["session:read"]','3642009f68847ecb',1795415911715,1826951911715,NULL,NULL,NULL);
INSERT INTO "token" VALUES('b292781675cdcbb7','alice','gone',X'89ACD33A7088A5BF1B856C1FBD8D5259DCE0D5B295F12F69E7386B195C7AC34B','["session:read"]','3642009f68847ecb',1795415911728,NULL,1795415911730,NULL,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','01b82857-54ff-4c39-a497-e8a92f798610',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX unrevoked_token ON token(account, expire_ms) WHERE revoked_ms IS NULL;
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
