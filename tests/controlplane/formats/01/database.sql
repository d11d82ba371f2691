BEGIN TRANSACTION;
CREATE TABLE abandoned (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "abandoned" VALUES('691c7a4f-cf63-488a-bff9-e21c3cbad73d','a0',1795279441973,NULL);
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795279437829,NULL,NULL,NULL);
INSERT INTO "account" VALUES('bob',1795279437831,NULL,NULL,NULL);
CREATE TABLE agent (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    region TEXT NOT NULL REFERENCES region(name),
    node_pool TEXT NOT NULL REFERENCES node_pool(name)
) STRICT;
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmp14w3rjey/a0.sock','local','default');
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',1795279437874);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,1795279437829,'account.created','alice','operator','alice','{}');
INSERT INTO "event" VALUES(2,1795279437829,'token.created','alice','operator','c98e77f41d2866ee','{"scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]}');
INSERT INTO "event" VALUES(3,1795279437831,'account.created','bob','operator','bob','{}');
INSERT INTO "event" VALUES(4,1795279437831,'token.created','bob','operator','00de1df4b90132b7','{"scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]}');
INSERT INTO "event" VALUES(5,1795279437832,'token.created','','operator','d9225fb8b989646d','{"scopes": ["operator:read", "operator:write"]}');
INSERT INTO "event" VALUES(6,1795279437874,'application.created','alice','c98e77f41d2866ee','game','{}');
INSERT INTO "event" VALUES(7,1795279437881,'tag.enabled','alice','c98e77f41d2866ee','game:v1','{"digest": "sha256:c1ce9b86e30cb6ac171723a3b9d62f1eeee2fd8ffb456d2a29c6d06f4c59d145"}');
INSERT INTO "event" VALUES(8,1795279437894,'tag.enabled','alice','c98e77f41d2866ee','game:v2','{"digest": "sha256:07318202e20cbddba4456aa86604008589b7858226f34ba613321c0514250050"}');
INSERT INTO "event" VALUES(9,1795279437904,'session.reserved','alice','c98e77f41d2866ee','match ü','{}');
INSERT INTO "event" VALUES(10,1795279437922,'session.reserved','alice','c98e77f41d2866ee','stopped','{}');
INSERT INTO "event" VALUES(11,1795279437942,'session.reserved','alice','c98e77f41d2866ee','fails','{}');
INSERT INTO "event" VALUES(12,1795279437959,'session.stop','alice','c98e77f41d2866ee','stopped','{}');
INSERT INTO "event" VALUES(13,1795279437965,'session.ended','alice','agent','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(14,1795279437968,'session.ended','alice','agent','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(15,1795279437970,'session.reserved','alice','c98e77f41d2866ee','unknown','{}');
INSERT INTO "event" VALUES(16,1795279441973,'session.not_started','alice','controlplane','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': because no host has room"}');
CREATE TABLE node_pool (
    name TEXT PRIMARY KEY,
    strategy TEXT NOT NULL DEFAULT 'packed'
) STRICT;
INSERT INTO "node_pool" VALUES('default','packed');
CREATE TABLE player (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    session TEXT NOT NULL,
    player TEXT NOT NULL,
    UNIQUE (account, session, player),
    FOREIGN KEY (account, session) REFERENCES session(account, id) ON DELETE CASCADE
) STRICT;
CREATE TABLE region (name TEXT PRIMARY KEY) STRICT;
INSERT INTO "region" VALUES('local');
INSERT INTO "region" VALUES('elsewhere');
CREATE TABLE registry (
    name TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    aliases TEXT NOT NULL
) STRICT;
INSERT INTO "registry" VALUES('local','127.0.0.1:45489','[]');
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
    stop_requested_ms INTEGER,
    PRIMARY KEY (account, id)
) STRICT;
INSERT INTO "session" VALUES('alice','match ü','35cb0908-2e3d-4d21-9e8e-c2482f212b0f','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',1000000000,268435456,1795279437904,NULL,NULL,NULL,'',NULL);
INSERT INTO "session" VALUES('alice','stopped','4ad4114d-8662-496a-9e86-3960d4ee6f68','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',1000000000,268435456,1795279437922,1795279437964,'stopped',0,'',1795279437959);
INSERT INTO "session" VALUES('alice','fails','ff549fbc-02af-405c-a71c-3966b8d9dc92','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',1000000000,268435456,1795279437942,1795279437967,'exited',0,'',NULL);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:c1ce9b86e30cb6ac171723a3b9d62f1eeee2fd8ffb456d2a29c6d06f4c59d145','127.0.0.1:45489/studio/game@sha256:c1ce9b86e30cb6ac171723a3b9d62f1eeee2fd8ffb456d2a29c6d06f4c59d145',1,1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:07318202e20cbddba4456aa86604008589b7858226f34ba613321c0514250050','127.0.0.1:45489/studio/game@sha256:07318202e20cbddba4456aa86604008589b7858226f34ba613321c0514250050',2,1);
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
) STRICT;
INSERT INTO "token" VALUES('c98e77f41d2866ee','alice','initial',X'9B7A103F2F92690CAC5B586084C56CE0259C60C658E491E064421D7388EA0B2E','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795279437829,NULL,NULL,1795279437870);
INSERT INTO "token" VALUES('00de1df4b90132b7','bob','initial',X'45472AE3522175FBA75A77989F7F8DDAD87F8A9EE84D48030D221CFD8909B58A','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795279437831,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d9225fb8b989646d',NULL,'initial',X'C3C42F1CD1DE7EC7D60FE4D8AE3C72B60A8E028279D11DA2A44E7AB3009892B9','["operator:read", "operator:write"]',NULL,1795279437832,NULL,NULL,NULL);
CREATE INDEX token_by_name ON token(account, name);
CREATE INDEX live_session_by_account ON session(account) WHERE ended_ms IS NULL;
CREATE INDEX live_session_by_agent ON session(agent) WHERE ended_ms IS NULL;
CREATE INDEX session_by_end ON session(ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX abandoned_by_agent ON abandoned(agent) WHERE stopped_ms IS NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',16);
COMMIT;
PRAGMA user_version=1;
