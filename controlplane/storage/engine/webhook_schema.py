"""The tables of webhooks; see `storage/tables/webhooks`."""

WEBHOOK_TABLES = """
-- An endpoint of an account; see `Webhook`. Its secrets are sealed with a key that is not in the
-- database; the former one signs until `former_until_ms`. `generation` grows with every change.
CREATE TABLE webhook (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES account(name),
    url TEXT NOT NULL,
    description TEXT NOT NULL,
    filter TEXT NOT NULL,
    ordered INTEGER NOT NULL,
    disabled TEXT,
    generation INTEGER NOT NULL,
    sealed_secret BLOB NOT NULL,
    former_secret BLOB,
    former_until_ms INTEGER,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX webhook_by_account ON webhook(account, created_ms);

-- How far a webhook has come: what it delivers up to this event is delivered, or in
-- `webhook_retry`. `attempts` is the number of the newest attempt, `failing_ms` the time of the
-- first failure since the last delivery, `gap` a gap that the endpoint is not notified of yet.
CREATE TABLE webhook_progress (
    webhook TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_ms INTEGER,
    gap TEXT
) STRICT, WITHOUT ROWID;

-- Events whose last attempt has failed; number 0 is the gap of `webhook_progress`.
CREATE TABLE webhook_retry (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;

-- `event` is the id of the event, or what the message is instead. `status` is NULL without an
-- answer, `answer` the beginning of one.
CREATE TABLE webhook_attempt (
    webhook TEXT NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    kind TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER,
    error TEXT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT;
"""
