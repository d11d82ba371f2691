BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795967916510,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795967916510,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795967917364,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpigvm33va/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795967917348,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'8aeb0867-8e1e-486d-a70a-c027c9c977c4','5e5f372a115085a82663830102cbd81a9225f99e',1798559919000,'f70abba236982d718469e639b1497b471e788728029fa7ed41fdcdac5f8acadd',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'0d0241f1-35a5-4efd-860e-c0068922472b','cc9986fc0b059147fb70cb96badd3d8354fe747',1798559919000,'f70abba236982d718469e639b1497b471e788728029fa7ed41fdcdac5f8acadd',0,1795967919703,0,0,NULL,NULL,0,NULL,'',0);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795967919708,NULL,NULL,NULL,'f70abba236982d718469e639b1497b471e788728029fa7ed41fdcdac5f8acadd',0,NULL,0,0,NULL,NULL,0,NULL,'',0);
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
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}',1000000000,268435456,0,'[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,0,0,'',0,'[]',0,0,1795967917374);
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
INSERT INTO "enrolment_token" VALUES('26f62b27f97e7904',X'98931423E1AB05B132E1C8A573B0235310F6B09548F6A0FB48AE3CB7189D91AB','local','default',NULL,1795968819656,1795967919662);
INSERT INTO "enrolment_token" VALUES('1c40fbac8698c84f',X'F58922F3378FD23803DDAEE59EA432E23D24DC5977E3ACD0788AFDDEF2099FD1','local','default',NULL,1795968819685,1795967919689);
INSERT INTO "enrolment_token" VALUES('5c0104c993766f2e',X'EED0BFDC68AE2F27C682488F17BC4120D6EF7025A7A789C9289006E534AE45B3','local','default',NULL,1795968819695,1795967919697);
INSERT INTO "enrolment_token" VALUES('4cfa0e88885e3e1d',X'9BA40B7C18C7750D013DB7C49CF1099DA24A2B82349A03FCE0C8055C748725EB','local','default',NULL,1795968819710,NULL);
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    topic TEXT NOT NULL,
    kind TEXT NOT NULL,
    account TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,1795967916510,'account','account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795967916510,'token','token.created','alice','init','','009e2c189045faab','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795967916510,'account','account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795967916510,'token','token.created','bob','init','','093558fb64f8e44b','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795967916510,'token','token.created','','init','','d59cc536efc5e94f','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795967917357,'region','region.created','','d59cc536efc5e94f','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795967917359,'node_pool','node_pool.set','','d59cc536efc5e94f','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false, "capabilities": []}');
INSERT INTO "event" VALUES(8,1795967917362,'registry','registry.set','','d59cc536efc5e94f','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795967917364,'account','account.created','carol','d59cc536efc5e94f','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795967917364,'token','token.created','carol','d59cc536efc5e94f','127.0.0.1','c348b5b255b03840','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795967917366,'account','account.created','dora','d59cc536efc5e94f','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795967917366,'token','token.created','dora','d59cc536efc5e94f','127.0.0.1','c98eb41501b386ab','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795967917368,'account','account.changed','alice','d59cc536efc5e94f','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795967917370,'account','account.removed','dora','d59cc536efc5e94f','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795967917374,'application','application.created','alice','009e2c189045faab','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795967917379,'tag','tag.enabled','alice','009e2c189045faab','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795967917388,'tag','tag.enabled','alice','009e2c189045faab','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795967917395,'token','token.created','alice','009e2c189045faab','127.0.0.1','0d07ff3cc28966cd','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827503917395}');
INSERT INTO "event" VALUES(19,1795967917397,'token','token.created','alice','009e2c189045faab','127.0.0.1','2e370b1bd78a6e6b','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795967917409,'token','token.revoked','alice','d59cc536efc5e94f','127.0.0.1','2e370b1bd78a6e6b','{"with": "2e370b1bd78a6e6b"}');
INSERT INTO "event" VALUES(21,1795967917415,'session','session.reserved','alice','009e2c189045faab','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795967917461,'session','session.reserved','alice','009e2c189045faab','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795967917502,'session','session.reserved','alice','009e2c189045faab','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795967917539,'session','session.stop','alice','009e2c189045faab','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795967917549,'session','session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795967917574,'session','session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795967917637,'session','session.reserved','alice','009e2c189045faab','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795967919653,'session','session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has capacity"}');
INSERT INTO "event" VALUES(29,1795967919656,'agent','agent.token_created','','d59cc536efc5e94f','127.0.0.1','26f62b27f97e7904','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795967919662,'agent','agent.enrolled','','26f62b27f97e7904','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "5e5f372a115085a82663830102cbd81a9225f99e"}');
INSERT INTO "event" VALUES(31,1795967919685,'agent','agent.token_created','','d59cc536efc5e94f','127.0.0.1','1c40fbac8698c84f','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795967919689,'agent','agent.enrolled','','1c40fbac8698c84f','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "cc9986fc0b059147fb70cb96badd3d8354fe747"}');
INSERT INTO "event" VALUES(33,1795967919695,'agent','agent.token_created','','d59cc536efc5e94f','127.0.0.1','5c0104c993766f2e','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795967919697,'agent','agent.enrolled','','5c0104c993766f2e','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "5487673cdeaefcb6691b49beeb3bf37c7128aff"}');
INSERT INTO "event" VALUES(35,1795967919703,'agent','agent.revoked','','d59cc536efc5e94f','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795967919708,'agent','agent.removed','','d59cc536efc5e94f','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795967919710,'agent','agent.token_created','','d59cc536efc5e94f','127.0.0.1','4cfa0e88885e3e1d','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795967919712,'warm_pool','warm_pool.set','alice','009e2c189045faab','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (
    number INTEGER PRIMARY KEY,
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    UNIQUE (reference, account)
) STRICT;
INSERT INTO "image" VALUES(1,'127.0.0.1:46337/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES(2,'127.0.0.1:46337/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1795967916584);
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
INSERT INTO "player" VALUES(1,'alice','match ü','ann',1795967917526);
INSERT INTO "player" VALUES(2,'alice','match ü','bert',1795967917526);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:46337','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'6741414141414272444575744E4D6430326E514573676268355A3779774D62556D703230564A4C47474A6577306D484972386C704B6C545539696D303373596E5067564241395862474F5532496732445A7154424772426C3742426D6637516733556976787471664776555563733436556652506B59493D','[]',1,'');
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
    most_players INTEGER NOT NULL DEFAULT 0,
    earlier_players TEXT NOT NULL DEFAULT '[]',
    UNIQUE (account, id)
) STRICT;
INSERT INTO "session" VALUES(1,'alice','match ü','ff80aa13-09a9-4ac2-a870-fbd8c9f60459','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}','{"ttl": 5400}',1000000000,268435456,2,1795967917415,1795967917448,NULL,NULL,NULL,NULL,'',0,NULL,2,'[]');
INSERT INTO "session" VALUES(2,'alice','stopped','7d598fd9-c43c-4fa4-9090-3ac84efc7987','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795967917461,1795967917486,1795967917539,1795967917548,'stopped',0,'',0,NULL,0,'[]');
INSERT INTO "session" VALUES(3,'alice','fails','e47bd0c6-0f91-4006-a23f-bab3f6deb702','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795967917502,1795967917516,NULL,1795967917568,'exited',0,'',0,NULL,0,'[]');
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
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:46337/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,'','',1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:46337/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,'','',2);
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
INSERT INTO "token" VALUES('009e2c189045faab','alice','initial',X'5E7FD63B15842B7CC19245554CC25A5608AA4EAB78B4B6817B955F2C605D4AB2','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795967916510,NULL,NULL,1795967917373,'127.0.0.1');
INSERT INTO "token" VALUES('093558fb64f8e44b','bob','initial',X'5ED97174D110557862A8D400E343E34C77D75F8BEFCCEC3D4CAF50016BA7FEA6','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795967916510,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('d59cc536efc5e94f',NULL,'initial',X'0C18227151722A6055496D70B5FEAA5ECCDFDA4CC342D42334E2525C557B7DC6','["operator:read", "operator:write"]',NULL,1795967916510,NULL,NULL,1795967917356,'127.0.0.1');
INSERT INTO "token" VALUES('c348b5b255b03840','carol','initial',X'1D80675DE8844DD191CB662FE4FB9837C7C7A167997C411E0D116C5E140B774D','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795967917364,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('0d07ff3cc28966cd','alice','reader',X'D894E0EACB0BF51C8A932A277B6E468E6E979DD0FB17B9FDB6CCE91B0FB7D23F','["session:read"]','009e2c189045faab',1795967917395,1827503917395,NULL,NULL,NULL);
INSERT INTO "token" VALUES('2e370b1bd78a6e6b','alice','gone',X'852B93754A02428CDA1DDE0A1BE6800317C811F345529BE1AFDA7A2135080C9F','["session:read"]','009e2c189045faab',1795967917397,NULL,1795967917409,NULL,NULL);
CREATE TABLE stop_order (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    why TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    confirmed_ms INTEGER
) STRICT;
INSERT INTO "stop_order" VALUES('35e27a8b-f28e-4817-99a7-aef981b5b8be','a0','unanswered',1795967919651,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','91474951-7a6c-42e0-8879-759da91c61f5',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
CREATE INDEX event_by_time ON event(time_ms);
CREATE INDEX event_by_topic ON event(topic);
CREATE INDEX event_by_kind ON event(kind);
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_actor ON event(actor);
CREATE INDEX event_by_object ON event(object);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event',38);
INSERT INTO "sqlite_sequence" VALUES('player',2);
COMMIT;
PRAGMA user_version=1;
