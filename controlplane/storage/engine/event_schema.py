"""The tables of the log of events."""

EVENT_TABLES = """
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
-- Every event is written to each index: a query by anything else reads a bounded part of the log.
CREATE INDEX event_by_account ON event(account);
CREATE INDEX event_by_object ON event(object);

-- Readers of a class of an account's events begin after this number: older ones were removed, or
-- are of a former account of this name. By age all events are removed alike: both texts are empty.
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
"""
