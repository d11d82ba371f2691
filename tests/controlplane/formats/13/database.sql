BEGIN TRANSACTION;
CREATE TABLE abandoned (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "abandoned" VALUES('6afa083f-1ba5-4884-b531-e6010abe98de','a0',1795279436518,NULL);
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
, removed_ms INTEGER) STRICT;
INSERT INTO "account" VALUES('alice',1795279432195,50,40500000000,NULL,NULL);
INSERT INTO "account" VALUES('bob',1795279432197,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795279432391,9,NULL,NULL,NULL);
CREATE TABLE agent (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    removed_ms INTEGER, region TEXT REFERENCES region(name), node_pool TEXT REFERENCES node_pool(name), id TEXT, certificate_serial TEXT, certificate_expire_ms INTEGER, revoked_ms INTEGER) STRICT;
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp031v6cpf/a0.sock',NULL,'local','default',NULL,NULL,NULL,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444',NULL,'local','default','661bebc3-195c-467d-8dde-b71bf024dc78','31b8796963713408d12d86d75916af55c385df7c',1797871436000,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444',NULL,'local','default','23df9b03-913d-42c4-92d8-3f5a3b6f67ff','14f45eefd7c0d1c2d009a63d751e255c30eaa369',1797871436000,1795279436565);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',1795279436567,NULL,NULL,NULL,NULL,NULL,NULL);
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
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',1795279432408);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('f42965104dcf3c70',X'BAE8AA512E77CDB25B7A8D3089AE3F711AA548F08FEC6051DC138C675BC86D00','local','default',NULL,1795280336526,1795279436540);
INSERT INTO "enrolment_token" VALUES('db5a42f15b4f6bd6',X'29CF500B3C7B3A51EA1AF94D36FD2EEB8AE3820F0E6F0AD25A6F68BE67F2C27F','local','default',NULL,1795280336549,1795279436552);
INSERT INTO "enrolment_token" VALUES('5edd04ec3a7f4ffa',X'5569A460314349E44FD3FEB1C6CDB43F03B688172186976A9E30B956E2F77A6B','local','default',NULL,1795280336561,1795279436563);
INSERT INTO "enrolment_token" VALUES('7f7b95ebea50785e',X'45A757E7B3F3DBD9FD4BFE063D7FB2156A71142DF0F63929C01637DA83C1521D','local','default',NULL,1795280336569,NULL);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    object TEXT NOT NULL,
    data TEXT NOT NULL
, address TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "event" VALUES(1,1795279432195,'account.created','alice','init','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}','');
INSERT INTO "event" VALUES(2,1795279432195,'token.created','alice','init','43dcd9f66fb9bf5b','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}','');
INSERT INTO "event" VALUES(3,1795279432197,'account.created','bob','init','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}','');
INSERT INTO "event" VALUES(4,1795279432197,'token.created','bob','init','04389f8943e12f0f','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}','');
INSERT INTO "event" VALUES(5,1795279432199,'token.created','','init','aae06bd785f864b9','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}','');
INSERT INTO "event" VALUES(6,1795279432381,'region.created','','aae06bd785f864b9','third','{}','127.0.0.1');
INSERT INTO "event" VALUES(7,1795279432385,'node_pool.set','','aae06bd785f864b9','spread','{"strategy": "spread"}','127.0.0.1');
INSERT INTO "event" VALUES(8,1795279432389,'registry.set','','aae06bd785f864b9','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}','127.0.0.1');
INSERT INTO "event" VALUES(9,1795279432391,'account.created','carol','aae06bd785f864b9','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}','127.0.0.1');
INSERT INTO "event" VALUES(10,1795279432391,'token.created','carol','aae06bd785f864b9','b08be09f6f0c8401','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}','127.0.0.1');
INSERT INTO "event" VALUES(11,1795279432394,'account.created','dora','aae06bd785f864b9','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}','127.0.0.1');
INSERT INTO "event" VALUES(12,1795279432394,'token.created','dora','aae06bd785f864b9','13ab9cb1eb147c21','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}','127.0.0.1');
INSERT INTO "event" VALUES(13,1795279432396,'account.changed','alice','aae06bd785f864b9','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}','127.0.0.1');
INSERT INTO "event" VALUES(14,1795279432398,'account.removed','dora','aae06bd785f864b9','dora','{"tokens": 1}','127.0.0.1');
INSERT INTO "event" VALUES(15,1795279432408,'application.created','alice','43dcd9f66fb9bf5b','game','{}','127.0.0.1');
INSERT INTO "event" VALUES(16,1795279432413,'tag.enabled','alice','43dcd9f66fb9bf5b','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}','127.0.0.1');
INSERT INTO "event" VALUES(17,1795279432424,'tag.enabled','alice','43dcd9f66fb9bf5b','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}','127.0.0.1');
INSERT INTO "event" VALUES(18,1795279432432,'warm_pool.set','alice','43dcd9f66fb9bf5b','game/local','{"size": 3, "enabled": true}','127.0.0.1');
INSERT INTO "event" VALUES(19,1795279432434,'token.created','alice','43dcd9f66fb9bf5b','82e778445d5204d5','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1826815432434}','127.0.0.1');
INSERT INTO "event" VALUES(20,1795279432436,'token.created','alice','43dcd9f66fb9bf5b','7e8b3222da11fd39','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}','127.0.0.1');
INSERT INTO "event" VALUES(21,1795279432438,'token.revoked','alice','aae06bd785f864b9','7e8b3222da11fd39','{"with": "7e8b3222da11fd39"}','127.0.0.1');
INSERT INTO "event" VALUES(22,1795279432443,'session.reserved','alice','43dcd9f66fb9bf5b','match ü','{}','127.0.0.1');
INSERT INTO "event" VALUES(23,1795279432464,'session.reserved','alice','43dcd9f66fb9bf5b','stopped','{}','127.0.0.1');
INSERT INTO "event" VALUES(24,1795279432475,'session.reserved','alice','43dcd9f66fb9bf5b','fails','{}','127.0.0.1');
INSERT INTO "event" VALUES(25,1795279432483,'players.joined','alice','43dcd9f66fb9bf5b','match ü','{"count": 2}','127.0.0.1');
INSERT INTO "event" VALUES(26,1795279432487,'session.stop','alice','43dcd9f66fb9bf5b','stopped','{}','127.0.0.1');
INSERT INTO "event" VALUES(27,1795279432497,'session.ended','alice','a0','stopped','{"reason": "stopped"}','');
INSERT INTO "event" VALUES(28,1795279432502,'session.ended','alice','a0','fails','{"reason": "exited"}','');
INSERT INTO "event" VALUES(29,1795279432514,'session.reserved','alice','43dcd9f66fb9bf5b','unknown','{}','127.0.0.1');
INSERT INTO "event" VALUES(30,1795279436519,'session.not_started','alice','controlplane','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': because no host has room"}','');
INSERT INTO "event" VALUES(31,1795279436526,'agent.token_created','','aae06bd785f864b9','f42965104dcf3c70','{"region": "local", "nodePool": "default", "agent": null}','127.0.0.1');
INSERT INTO "event" VALUES(32,1795279436540,'agent.enrolled','','f42965104dcf3c70','host-1','{"region": "local", "nodePool": "default", "serial": "31b8796963713408d12d86d75916af55c385df7c"}','127.0.0.1');
INSERT INTO "event" VALUES(33,1795279436549,'agent.token_created','','aae06bd785f864b9','db5a42f15b4f6bd6','{"region": "local", "nodePool": "default", "agent": null}','127.0.0.1');
INSERT INTO "event" VALUES(34,1795279436552,'agent.enrolled','','db5a42f15b4f6bd6','host-2','{"region": "local", "nodePool": "default", "serial": "14f45eefd7c0d1c2d009a63d751e255c30eaa369"}','127.0.0.1');
INSERT INTO "event" VALUES(35,1795279436561,'agent.token_created','','aae06bd785f864b9','5edd04ec3a7f4ffa','{"region": "local", "nodePool": "default", "agent": null}','127.0.0.1');
INSERT INTO "event" VALUES(36,1795279436563,'agent.enrolled','','5edd04ec3a7f4ffa','host-3','{"region": "local", "nodePool": "default", "serial": "cd77e56269be7a6f1cf11ab5366d1cf581c687f"}','127.0.0.1');
INSERT INTO "event" VALUES(37,1795279436565,'agent.revoked','','aae06bd785f864b9','host-2','{}','127.0.0.1');
INSERT INTO "event" VALUES(38,1795279436567,'agent.removed','','aae06bd785f864b9','host-3','{}','127.0.0.1');
INSERT INTO "event" VALUES(39,1795279436569,'agent.token_created','','aae06bd785f864b9','7f7b95ebea50785e','{"region": "local", "nodePool": "default", "agent": null}','127.0.0.1');
CREATE TABLE image (reference TEXT PRIMARY KEY) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:34075/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18');
INSERT INTO "image" VALUES('127.0.0.1:34075/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365');
CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed'
) STRICT;
INSERT INTO "node_pool" VALUES('default','packed');
INSERT INTO "node_pool" VALUES('big','packed');
INSERT INTO "node_pool" VALUES('spread','spread');
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
    aliases TEXT NOT NULL
, username TEXT NOT NULL DEFAULT '', sealed_password BLOB, auth_hosts TEXT NOT NULL DEFAULT '[]', private INTEGER NOT NULL DEFAULT 0, ca TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "registry" VALUES('local','127.0.0.1:34075','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'67414141414142724163704968463176765F4552486A6B73302D765942757A41714A7570704C675A626147543378547974546E6F7576614D49536C5544356873394B3038315061494A6C683044624C41636A546E686D396C313362566F6C5A7942665951393171534D556643374845746C7578794947673D','[]',1,'');
CREATE TABLE session (
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
    nano_cpus INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    end_reason TEXT,
    exit_code INTEGER,
    detail TEXT NOT NULL DEFAULT '',
    stop_requested_ms INTEGER, player_count INTEGER NOT NULL DEFAULT 0, started_ms INTEGER, adopted_ended INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account, id)
) STRICT;
INSERT INTO "session" VALUES('alice','match ü','8f333f95-89c3-42c7-8f79-467ce306e7ff','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',1000000000,268435456,1795279432441,NULL,NULL,NULL,'',NULL,2,1795279432449,0);
INSERT INTO "session" VALUES('alice','stopped','f8225d45-8d8b-474c-915a-5e87e2b316c3','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',1000000000,268435456,1795279432463,1795279432496,'stopped',0,'',1795279432487,0,1795279432469,0);
INSERT INTO "session" VALUES('alice','fails','ed3e502d-51bc-4632-8d22-2a27608a9ba5','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',1000000000,268435456,1795279432474,1795279432500,'exited',0,'',NULL,0,1795279432478,0);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:34075/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',1,1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:34075/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',2,1);
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
    last_used_ms INTEGER
, last_used_address TEXT) STRICT;
INSERT INTO "token" VALUES('43dcd9f66fb9bf5b','alice','initial',X'A5C0A3232A98F079C9B9B262D6957F9070BC78CBE5CC8C606E88BE278A782B76','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795279432195,NULL,NULL,1795279432407,'127.0.0.1');
INSERT INTO "token" VALUES('04389f8943e12f0f','bob','initial',X'8F17BBA941002276DDBC3A5AD810888B5E4829E38EA727AF23A7E74EB3AF4DD5','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795279432197,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('aae06bd785f864b9',NULL,'initial',X'4D08A57616003875BF746A3E37E5639AB92322BC4811767939C79233EED39608','["operator:read", "operator:write"]',NULL,1795279432199,NULL,NULL,1795279432380,'127.0.0.1');
INSERT INTO "token" VALUES('b08be09f6f0c8401','carol','initial',X'5D143FD78EBA13F004D8D419B6D3570151F36A2CF919AB35E4C74CBF98F4B7EE','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795279432391,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('82e778445d5204d5','alice','reader',X'16A5E90753F39A93D793FF5595210CB250320EDBA78E348485143A879D1C70C3','["session:read"]','43dcd9f66fb9bf5b',1795279432434,1826815432434,NULL,NULL,NULL);
INSERT INTO "token" VALUES('7e8b3222da11fd39','alice','gone',X'1504AA4A3ADDFB1FA08A993C0648D2513B8EBCF9EB3EA7C336770EC55911FC3A','["session:read"]','43dcd9f66fb9bf5b',1795279432436,NULL,1795279432438,NULL,NULL);
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
    PRIMARY KEY (account, application, location),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
INSERT INTO "warm_pool" VALUES('alice','game','local','9c5839a2-09d7-4120-a331-64e3c22a8f5d',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}');
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX live_session_by_account ON session(account) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent) WHERE ended_ms IS NULL;
CREATE INDEX session_by_end ON session(ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX abandoned_by_agent ON abandoned(agent) WHERE stopped_ms IS NULL;
CREATE INDEX token_by_parent ON token(parent) WHERE parent IS NOT NULL;
CREATE INDEX player_by_id ON player(account, player);
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_actor ON event(actor);
CREATE INDEX event_by_object ON event(object);
CREATE INDEX event_by_kind ON event(kind);
CREATE INDEX event_by_topic ON event(substr(kind, 1, instr(kind || '.', '.') - 1));
CREATE INDEX live_session ON session(ended_ms) WHERE ended_ms IS NULL;
CREATE INDEX live_usage ON session(account, nano_cpus, memory_bytes, id) WHERE ended_ms IS NULL;
CREATE INDEX event_by_time ON event(time_ms);
CREATE INDEX abandoned_by_stop ON abandoned(stopped_ms) WHERE stopped_ms IS NOT NULL;
CREATE INDEX token_by_revocation ON token(revoked_ms) WHERE revoked_ms IS NOT NULL;
CREATE INDEX token_by_expiry ON token(expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX unrevoked_token ON token(account, expire_ms) WHERE revoked_ms IS NULL;
CREATE INDEX session_by_account ON session(account || '');
CREATE UNIQUE INDEX agent_by_id ON agent(id) WHERE id IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',39);
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=13;
