BEGIN TRANSACTION;
CREATE TABLE account (
    name TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    removed_ms INTEGER,
    quota_sessions INTEGER,
    quota_nano_cpus INTEGER,
    quota_memory_bytes INTEGER
) STRICT;
INSERT INTO "account" VALUES('alice',1795909346580,NULL,50,40500000000,NULL);
INSERT INTO "account" VALUES('bob',1795909346580,NULL,NULL,NULL,NULL);
INSERT INTO "account" VALUES('carol',1795909347015,NULL,9,NULL,NULL);
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
INSERT INTO "agent" VALUES('a0','unix:/tmp/tmpwgfdbjpu/a0.sock','local','default',NULL,NULL,NULL,NULL,NULL,0,NULL,0,0,NULL,1795909346746,0,NULL);
INSERT INTO "agent" VALUES('host-1','192.0.2.7:7444','local','default',NULL,'a8fe2335-3cfb-43fe-a72f-5485a5c19fbd','7d9b19bd25904715ba9ac2ba95f5e617e6025d36',1798501349000,'2f8b15525e65d81aa66c9a6323ced3fc6dac0ee40c02e12e11b032e2f73db750',0,NULL,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-2','192.0.2.7:7444','local','default',NULL,'6593e9b6-7c2a-47e6-be3f-c1690295db27','1e9e58bf49ae01b78cbc10c046ffeaafc577b789',1798501349000,'2f8b15525e65d81aa66c9a6323ced3fc6dac0ee40c02e12e11b032e2f73db750',0,1795909349413,0,0,NULL,NULL,0,NULL);
INSERT INTO "agent" VALUES('host-3','192.0.2.7:7444',NULL,NULL,1795909349421,NULL,NULL,NULL,'2f8b15525e65d81aa66c9a6323ced3fc6dac0ee40c02e12e11b032e2f73db750',0,NULL,0,0,NULL,NULL,0,NULL);
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
    stop_signal TEXT NOT NULL DEFAULT '',
    stop_grace INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
INSERT INTO "application" VALUES('alice','game','local','studio/game',5,'bridge','default','["local", "elsewhere"]','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','{"nano_cpus": 1000000000, "memory_bytes": 268435456, "gpus": 0}','[{"container": 7777, "protocol": "udp", "tls": false, "pinned": 0}, {"container": 7778, "protocol": "tcp", "tls": false, "pinned": 0}]',0,'',0,1795909347067);
CREATE TABLE enrolment_token (
    id TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    region TEXT NOT NULL,
    node_pool TEXT NOT NULL,
    agent TEXT,
    expire_ms INTEGER NOT NULL,
    used_ms INTEGER
) STRICT;
INSERT INTO "enrolment_token" VALUES('00247eef3bb00ab9',X'4EEC9ACE00842301DE80897FD659C57B18CF7871AA1C3082B14215309069DFBC','local','default',NULL,1795910249332,1795909349349);
INSERT INTO "enrolment_token" VALUES('07296c38a71b7e69',X'2CF73A02449E59B17981EB54DEF66EE68EE7E7A5B34DEDD38AA21EBD516F28A0','local','default',NULL,1795910249379,1795909349387);
INSERT INTO "enrolment_token" VALUES('a1188a6403bc8087',X'306473EDC65ACB23EC5081282ADC4AFE93857F7ECC0AFC170F4405374F9DD5F3','local','default',NULL,1795910249395,1795909349398);
INSERT INTO "enrolment_token" VALUES('e1e06d4406e8d78b',X'C1F9C6BF2205A05B98A6586FBB8CD5972BA8BED2588A243C29819E35DF23720F','local','default',NULL,1795910249437,NULL);
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
INSERT INTO "event" VALUES(1,1795909346580,'account.created','alice','init','','alice','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(2,1795909346580,'token.created','alice','init','','ffe35716f3b362d3','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(3,1795909346580,'account.created','bob','init','','bob','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(4,1795909346580,'token.created','bob','init','','9321d990884cd5da','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(5,1795909346580,'token.created','','init','','2198c05aa7bd49bc','{"name": "initial", "scopes": ["operator:read", "operator:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(6,1795909346842,'region.created','','2198c05aa7bd49bc','127.0.0.1','third','{}');
INSERT INTO "event" VALUES(7,1795909346983,'node_pool.set','','2198c05aa7bd49bc','127.0.0.1','spread','{"strategy": "spread", "hostNetwork": false}');
INSERT INTO "event" VALUES(8,1795909347004,'registry.set','','2198c05aa7bd49bc','127.0.0.1','private','{"address": "r.example", "aliases": [], "username": "robot", "passwordGiven": true, "authHosts": [], "private": true, "ca": false}');
INSERT INTO "event" VALUES(9,1795909347015,'account.created','carol','2198c05aa7bd49bc','127.0.0.1','carol','{"quota": {"sessions": 9, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(10,1795909347015,'token.created','carol','2198c05aa7bd49bc','127.0.0.1','d2dec2d41b92b2c2','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(11,1795909347024,'account.created','dora','2198c05aa7bd49bc','127.0.0.1','dora','{"quota": {"sessions": null, "nano_cpus": null, "memory_bytes": null}}');
INSERT INTO "event" VALUES(12,1795909347024,'token.created','dora','2198c05aa7bd49bc','127.0.0.1','faec0df176795457','{"name": "initial", "scopes": ["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"], "expire_ms": null}');
INSERT INTO "event" VALUES(13,1795909347034,'account.changed','alice','2198c05aa7bd49bc','127.0.0.1','alice','{"quota": {"sessions": 50, "nano_cpus": 40500000000, "memory_bytes": null}}');
INSERT INTO "event" VALUES(14,1795909347043,'account.removed','dora','2198c05aa7bd49bc','127.0.0.1','dora','{"tokens": 1}');
INSERT INTO "event" VALUES(15,1795909347067,'application.created','alice','ffe35716f3b362d3','127.0.0.1','game','{}');
INSERT INTO "event" VALUES(16,1795909347086,'tag.enabled','alice','ffe35716f3b362d3','127.0.0.1','game:v1','{"digest": "sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18"}');
INSERT INTO "event" VALUES(17,1795909347104,'tag.enabled','alice','ffe35716f3b362d3','127.0.0.1','game:v2','{"digest": "sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365"}');
INSERT INTO "event" VALUES(18,1795909347117,'token.created','alice','ffe35716f3b362d3','127.0.0.1','7a2e507245ee7d0f','{"name": "reader", "scopes": ["session:read"], "expire_ms": 1827445347117}');
INSERT INTO "event" VALUES(19,1795909347123,'token.created','alice','ffe35716f3b362d3','127.0.0.1','fea1ae92ac9b7e3c','{"name": "gone", "scopes": ["session:read"], "expire_ms": null}');
INSERT INTO "event" VALUES(20,1795909347130,'token.revoked','alice','2198c05aa7bd49bc','127.0.0.1','fea1ae92ac9b7e3c','{"with": "fea1ae92ac9b7e3c"}');
INSERT INTO "event" VALUES(21,1795909347139,'session.reserved','alice','ffe35716f3b362d3','127.0.0.1','match ü','{}');
INSERT INTO "event" VALUES(22,1795909347164,'session.reserved','alice','ffe35716f3b362d3','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(23,1795909347179,'session.reserved','alice','ffe35716f3b362d3','127.0.0.1','fails','{}');
INSERT INTO "event" VALUES(24,1795909347215,'session.stop','alice','ffe35716f3b362d3','127.0.0.1','stopped','{}');
INSERT INTO "event" VALUES(25,1795909347243,'session.ended','alice','a0','','stopped','{"reason": "stopped"}');
INSERT INTO "event" VALUES(26,1795909347262,'session.ended','alice','a0','','fails','{"reason": "exited"}');
INSERT INTO "event" VALUES(27,1795909347290,'session.reserved','alice','ffe35716f3b362d3','127.0.0.1','unknown','{}');
INSERT INTO "event" VALUES(28,1795909349323,'session.not_started','alice','controlplane','','unknown','{"why": "session cannot currently start in the region: cannot start in ''local'': no host has capacity"}');
INSERT INTO "event" VALUES(29,1795909349332,'agent.token_created','','2198c05aa7bd49bc','127.0.0.1','00247eef3bb00ab9','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(30,1795909349349,'agent.enrolled','','00247eef3bb00ab9','127.0.0.1','host-1','{"region": "local", "nodePool": "default", "serial": "7d9b19bd25904715ba9ac2ba95f5e617e6025d36"}');
INSERT INTO "event" VALUES(31,1795909349379,'agent.token_created','','2198c05aa7bd49bc','127.0.0.1','07296c38a71b7e69','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(32,1795909349387,'agent.enrolled','','07296c38a71b7e69','127.0.0.1','host-2','{"region": "local", "nodePool": "default", "serial": "1e9e58bf49ae01b78cbc10c046ffeaafc577b789"}');
INSERT INTO "event" VALUES(33,1795909349395,'agent.token_created','','2198c05aa7bd49bc','127.0.0.1','a1188a6403bc8087','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(34,1795909349398,'agent.enrolled','','a1188a6403bc8087','127.0.0.1','host-3','{"region": "local", "nodePool": "default", "serial": "2564bb8a6412a2417bf3361e7dd9c068ba51ac1d"}');
INSERT INTO "event" VALUES(35,1795909349413,'agent.revoked','','2198c05aa7bd49bc','127.0.0.1','host-2','{}');
INSERT INTO "event" VALUES(36,1795909349421,'agent.removed','','2198c05aa7bd49bc','127.0.0.1','host-3','{}');
INSERT INTO "event" VALUES(37,1795909349437,'agent.token_created','','2198c05aa7bd49bc','127.0.0.1','e1e06d4406e8d78b','{"region": "local", "nodePool": "default", "agent": null}');
INSERT INTO "event" VALUES(38,1795909349446,'warm_pool.set','alice','ffe35716f3b362d3','127.0.0.1','game/local','{"size": 3, "enabled": true}');
CREATE TABLE image (
    reference TEXT NOT NULL,
    account TEXT NOT NULL,
    PRIMARY KEY (reference, account)
) STRICT;
INSERT INTO "image" VALUES('127.0.0.1:33229/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','alice');
INSERT INTO "image" VALUES('127.0.0.1:33229/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','alice');
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
INSERT INTO "lost_time" VALUES(0,1795909346640);
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
INSERT INTO "registry" VALUES('local','127.0.0.1:33229','[]','',NULL,'[]',0,'');
INSERT INTO "registry" VALUES('private','r.example','[]','robot',X'67414141414142724332626A5979765278744B594E4C76565F534C4354764B566C4D5268484E5254434D716B4274655548706F69776D4975304C61424B366E4833315F3555654558345944774D65616539543641687168696A474D4C4F37543277545655744C67355F446A544150554D5775396D394A773D','[]',1,'');
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
INSERT INTO "session" VALUES(1,'alice','match ü','1b73cd2f-f0c1-4efd-9e4b-3f080049508c','a0',1,'running','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20000, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20001, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "match \u00fc"}',NULL,1000000000,268435456,2,1795909347139,1795909347150,NULL,NULL,NULL,NULL,'',0);
INSERT INTO "session" VALUES(2,'alice','stopped','b9a4d18c-26b1-4860-b67f-d7e4916aed6c','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20010, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20011, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "stopped"}',NULL,1000000000,268435456,0,1795909347164,1795909347169,1795909347215,1795909347236,'stopped',0,'',0);
INSERT INTO "session" VALUES(3,'alice','fails','e26f8f48-d391-42cc-a31d-3ca181cc78b8','a0',1,'exited','game','v2','local','192.0.2.1','[{"container": 7777, "protocol": "udp", "host": 20020, "tls": false}, {"container": 7778, "protocol": "tcp", "host": 20021, "tls": false}]','{"mode": "duel"}','x-1','{"TILTYARD_SESSION_ID": "fails"}',NULL,1000000000,268435456,0,1795909347179,1795909347192,NULL,1795909347252,'exited',0,'',0);
CREATE TABLE tag (
    account TEXT NOT NULL,
    application TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    image TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    PRIMARY KEY (account, application, name),
    FOREIGN KEY (account, application) REFERENCES application(account, name)
) STRICT;
INSERT INTO "tag" VALUES('alice','game','v1','sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18','127.0.0.1:33229/studio/game@sha256:41a2aff6675cb5404ccd5831006c5fecd55ca869ff5a5f9d08259f4ba1e93c18',14,1);
INSERT INTO "tag" VALUES('alice','game','v2','sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365','127.0.0.1:33229/studio/game@sha256:80700c2ffe6347fa8640d1374787c706bea4e9c4d20f25a995b336912e03f365',14,2);
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
INSERT INTO "token" VALUES('ffe35716f3b362d3','alice','initial',X'538EC0CF7CD57FDF2822BEDFA1B553E35C6F2147E61C659A6699685ADFD8DB49','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795909346580,NULL,NULL,1795909347063,'127.0.0.1');
INSERT INTO "token" VALUES('9321d990884cd5da','bob','initial',X'53E072B3218787F0A4E0E7B4F8A76FD5E4EFF75075A4C1F6C1F8FACA6EC5ABDD','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795909346580,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('2198c05aa7bd49bc',NULL,'initial',X'A136EB1CE4C0EE3A6B4B2E92986C36DEC38035924EE01394A7957E3085F438DE','["operator:read", "operator:write"]',NULL,1795909346580,NULL,NULL,1795909346841,'127.0.0.1');
INSERT INTO "token" VALUES('d2dec2d41b92b2c2','carol','initial',X'B03C566C5E257238DEB74B16BE102C1B933FE85150EF5046EEE0F534D959B66F','["application:read", "application:write", "artifact:read", "logs:read", "regions:read", "session:players", "session:read", "session:start", "session:stop", "token:write"]',NULL,1795909347015,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('7a2e507245ee7d0f','alice','reader',X'6CEC00DE38E83309BE7FECE7B05C35F85AA753793A9B7449FAEFD607571A98DD','["session:read"]','ffe35716f3b362d3',1795909347117,1827445347117,NULL,NULL,NULL);
INSERT INTO "token" VALUES('fea1ae92ac9b7e3c','alice','gone',X'1A6943D78C552CA937E45543D6C322EA5F68E7018BAD162F07FA8DFFD3D432E9','["session:read"]','ffe35716f3b362d3',1795909347123,NULL,1795909347130,NULL,NULL);
CREATE TABLE unanswered (
    internal_id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    stopped_ms INTEGER
) STRICT;
INSERT INTO "unanswered" VALUES('4c7c6664-6cdd-4c0d-92ed-d13ac028125f','a0',1795909349320,NULL);
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
INSERT INTO "warm_pool" VALUES('alice','game','local','0adfaec7-0f9c-4a84-951c-566fa7cc34fd',1,3,1,'{"MODE": "\u00e9"}','["-x"]','{"a": "b"}','');
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
