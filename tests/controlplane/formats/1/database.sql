BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795897270932,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795897270932,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795897273118,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpxg4s0r0c/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795897272844,0,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'915dc27f-1b7a-456e-91f5-b2a062188524','2868e4100d42254446fed68dac0f282c66308b67',1798489277000,'80f50baa7e3fd9957b9076471c0daadaf49032e509b0cb6856bc8fd97eacad7e',0,NULL,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'63db7cf5-88ac-4f6b-b785-a1cfcb48bc9f','3d58dc2133d9a2a74679e048762ca100da320f05',1798489277000,'80f50baa7e3fd9957b9076471c0daadaf49032e509b0cb6856bc8fd97eacad7e',0,1795897278139,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795897278315,NULL,NULL,NULL,'80f50baa7e3fd9957b9076471c0daadaf49032e509b0cb6856bc8fd97eacad7e',0,NULL,0,0,NULL,NULL,0,NULL);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,1795897273439);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('2fe273e039f9e5b7',X'DFF8FA5D800602C8A836879535D54A66B797521828DD4E272C038F744C9B7116','local','default',NULL,1795898177723,1795897277779);
INSERT INTO "enrolment_token" VALUES('fb4f45910b6b732a',X'50F1A2B57FD169C06E5F511E7F64C40E9AFCA4B00757F5A963C2A6B2D64F5E28','local','default',NULL,1795898177823,1795897277849);
INSERT INTO "enrolment_token" VALUES('7bd507f3e6664bad',X'19426CAC0AE03B3C17DA0BCE1D0B88768028C7786A78265A03336105889A8342','local','default',NULL,1795898177941,1795897277964);
INSERT INTO "enrolment_token" VALUES('60806a5f897e8135',X'D5AB4C65F9D8DEA03163E6E43EAF5474C8D571477F8D1A5E98CA568496BD2A17','local','default',NULL,1795898178344,NULL);
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
INSERT INTO "event" VALUES(1,1795897270932,'account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795897270932,'token.created','alice','init','','d233a9ca7f134806','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795897270932,'account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795897270932,'token.created','bob','init','','654610ce5d157127','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795897270932,'token.created','','init','','f83e7c529f4ac53f','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795897272937,'region.created','','f83e7c529f4ac53f','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795897272984,'node_pool.set','','f83e7c529f4ac53f','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false}');
INSERT INTO "event" VALUES(8,1795897273072,'registry.set','','f83e7c529f4ac53f','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795897273118,'account.created','carol','f83e7c529f4ac53f','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795897273118,'token.created','carol','f83e7c529f4ac53f','127.0.0.1','28c8f71631920549','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795897273185,'account.created','dora','f83e7c529f4ac53f','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795897273185,'token.created','dora','f83e7c529f4ac53f','127.0.0.1','ef2a7b2ff1bbea74','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795897273199,'account.changed','alice','f83e7c529f4ac53f','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795897273227,'account.removed','dora','f83e7c529f4ac53f','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795897273439,'application.created','alice','d233a9ca7f134806','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795897273533,'tag.enabled','alice','d233a9ca7f134806','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795897273648,'tag.enabled','alice','d233a9ca7f134806','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795897274106,'token.created','alice','d233a9ca7f134806','127.0.0.1','8dea5ba1a7bea048','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827433274106}');
INSERT INTO "event" VALUES(19,1795897274194,'token.created','alice','d233a9ca7f134806','127.0.0.1','c603fd5b1d19fa59','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795897274209,'token.revoked','alice','f83e7c529f4ac53f','127.0.0.1','c603fd5b1d19fa59','{"with": "c603fd5b1d19fa59"}');
INSERT INTO "event" VALUES(21,1795897274244,'session.reserved','alice','d233a9ca7f134806','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795897274406,'session.reserved','alice','d233a9ca7f134806','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795897274553,'session.reserved','alice','d233a9ca7f134806','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795897274866,'session.stop','alice','d233a9ca7f134806','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795897274917,'session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795897274984,'session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795897275061,'session.reserved','alice','d233a9ca7f134806','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795897277126,'session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has capacity"}');
INSERT INTO "event" VALUES(29,1795897277723,'agent.token_created','','f83e7c529f4ac53f','127.0.0.1','2fe273e039f9e5b7','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795897277779,'agent.enrolled','','2fe273e039f9e5b7','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "2868e4100d42254446fed68dac0f282c66308b67"}');
INSERT INTO "event" VALUES(31,1795897277823,'agent.token_created','','f83e7c529f4ac53f','127.0.0.1','fb4f45910b6b732a','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795897277849,'agent.enrolled','','fb4f45910b6b732a','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "3d58dc2133d9a2a74679e048762ca100da320f05"}');
INSERT INTO "event" VALUES(33,1795897277941,'agent.token_created','','f83e7c529f4ac53f','127.0.0.1','7bd507f3e6664bad','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795897277964,'agent.enrolled','','7bd507f3e6664bad','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "21231c55085771a7dd8f60a353f054a691162504"}');
INSERT INTO "event" VALUES(35,1795897278139,'agent.revoked','','f83e7c529f4ac53f','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795897278315,'agent.removed','','f83e7c529f4ac53f','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795897278344,'agent.token_created','','f83e7c529f4ac53f','127.0.0.1','60806a5f897e8135','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795897278372,'warm_pool.set','alice','d233a9ca7f134806','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (reference TEXT PRIMARY KEY) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:45077/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18');
INSERT INTO "image" VALUES('127.0.0.1:45077/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365');
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
INSERT INTO "lost_time" VALUES(0,1795897271451);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:45077','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272437A6535512D4F4F47715F776B775971726D4879786C45326D4944526C7442654F5753724A435649396B76515F4B4267526E534E5F6F676C44355556674E454530796738324666627031686A486C576E58303635354F70707177735F5A6A6E2D45597165444F424650715376365A343D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','d15f7931-a469-4366-b931-76ca2ffd0791','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',NULL,1000000000,268435456,2,1795897274244,1795897274287,NULL,NULL,NULL,NULL,'',0);
INSERT INTO "session" VALUES(2,'alice','stopped','68c74df3-806d-4835-b70b-4cf07820a892','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795897274406,1795897274527,1795897274866,1795897274915,'stopped',0,'',0);
INSERT INTO "session" VALUES(3,'alice','fails','b64865d5-0418-4eef-9a99-26c24d50247d','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795897274553,1795897274586,NULL,1795897274932,'exited',0,'',0);
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:45077/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',1,1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:45077/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',2,1);
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
INSERT INTO "token" VALUES('d233a9ca7f134806','alice','initial',X'3444CEC42371EE78652965FFEECE8177B6ED07595FB1292B0F1C23204E96ED38','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795897270932,NULL,NULL,1795897273326,'127.0.0.1');
INSERT INTO "token" VALUES('654610ce5d157127','bob','initial',X'6EEE2B6178FF9870003EFF202C7CE7AFCD76FF08866FB31FB97AEF3AB2EB8E1E','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795897270932,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('f83e7c529f4ac53f',NULL,'initial',X'B677C6E31F4B77C2AE450A3DBAED100F390782E28B8BEB005792F670F4208114','["operator:read", "operator:write"]',NULL,1795897270932,NULL,NULL,1795897272921,'127.0.0.1');
INSERT INTO "token" VALUES('28c8f71631920549','carol','initial',X'E9BFA869292E90617F5306584A57E4B0FAA5222B69E5EEA1CEDEC3BAFEED7B0B','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795897273118,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('8dea5ba1a7bea048','alice','reader',X'2136965D353D39AB40AD3E05460475AFEC82216D16AB589904BB12B349A10E25','["session:read"]','d233a9ca7f134806',1795897274106,1827433274106,NULL,NULL,NULL);
INSERT INTO "token" VALUES('c603fd5b1d19fa59','alice','gone',X'57E009F418B6F5E20DF8643E601BADABA167300E156EA7875833932C7D050940','["session:read"]','d233a9ca7f134806',1795897274194,NULL,1795897274209,NULL,NULL);
CREATE TABLE unanswered (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "unanswered" VALUES('11f5d660-0ec8-4c0b-9658-3c2c2a928430','a0',1795897277120,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','2ad9168f-a16f-4fe5-93e3-9d9211c98008',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
