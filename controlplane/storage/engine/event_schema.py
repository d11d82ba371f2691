"""The tables of the log of events, and of what it has of tags."""

OF_PLAYERS = "kind IN ('players.joined', 'players.left')"
"""The condition of the events that have ids of players, as their index has it."""

EVENT_TABLES = f"""
-- The log of events. `address` is where the request came from, empty if there was none.
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
-- Every event is written to both indexes: a query by anything else reads a bounded part of it.
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_object ON event(object);
-- No other events are in this index, by which personal data is removed when it is old.
CREATE INDEX event_of_players ON event(time_ms) WHERE {OF_PLAYERS};

-- Readers of a class of an account's events begin after this number: older ones were removed. By
-- age all events are removed alike: both texts are empty. With the class NAME, older ones are of a
-- former account of this name: the account begins after them, operators read them.
CREATE TABLE event_start (
    account TEXT NOT NULL,
    retention TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (account, retention)
) STRICT, WITHOUT ROWID;

-- The number of the newest event; see `event_log.py`. The epoch changes with an older database.
CREATE TABLE event_counter (
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL
) STRICT;
INSERT INTO event_counter(epoch, number) VALUES (1, 0);

-- What the log of events has of tags: on which hosts and where an image is, or for what its pulls
-- failed since it is on no host of the region (`reasons`, as JSON). Rows of other digests or node
-- pools are of an earlier version of the tag.
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
CREATE INDEX tag_on_host_by_agent ON tag_on_host(agent);
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
"""  # noqa: S608
