-- Layout 1. Statements are separated by a line that holds only "--".
-- Times are whole Unix seconds.

CREATE TABLE api_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    key_digest TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
);
--
CREATE TABLE subscriptions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_id INTEGER NOT NULL REFERENCES api_keys(id) ON DELETE CASCADE,
    chat_id INTEGER NOT NULL,
    callback_url TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE(owner_id, chat_id, callback_url)
);
--
-- Ingestion asks for a chat's subscriptions once for each message.
CREATE INDEX subscriptions_chat ON subscriptions(chat_id, id);
--
-- Subscriptions of a chat that became a supergroup, where the owner had an equal one
-- on the new chat already: removed as soon as they have no job.
CREATE TABLE retiring (
    subscription_id INTEGER PRIMARY KEY REFERENCES subscriptions(id) ON DELETE CASCADE
);
--
CREATE TABLE poll_state (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    bot_id INTEGER NOT NULL,
    next_offset INTEGER NOT NULL
);
--
-- When an update was last ingested: tells a replay from a new sequence of update ids.
CREATE TABLE ingestion (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    last_update_at INTEGER NOT NULL
);
--
-- What the wall clock showed when a dispatcher last looked: tells the next one whether it
-- was set back meanwhile.
CREATE TABLE clock (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    seen_at INTEGER NOT NULL
);
--
-- Malformed updates that an operator lets the poller pass over.
CREATE TABLE skips (
    update_id INTEGER PRIMARY KEY,
    requested_at INTEGER NOT NULL
);
--
CREATE TABLE usernames (
    username TEXT PRIMARY KEY,
    chat_id INTEGER NOT NULL UNIQUE,
    observed_at INTEGER NOT NULL
);
--
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription_id INTEGER NOT NULL
        REFERENCES subscriptions(id) ON DELETE CASCADE,
    update_id INTEGER NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL CHECK(state IN ('PENDING','IN_FLIGHT','DEAD')),
    attempt_count INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_error TEXT,
    UNIQUE(subscription_id, update_id)
);
--
-- For recovery, purge, counts and listings. The dispatcher knows by itself what is due.
CREATE INDEX deliveries_due ON deliveries(state, next_attempt_at, id);
--
-- How often a dead letter was made a live job again. The dispatcher knows new jobs by their
-- ids; this tells it that an old one came back.
CREATE TABLE revivals (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    count INTEGER NOT NULL
);
--
INSERT INTO revivals (singleton, count) VALUES (1, 0);
--
-- How many jobs there are, so that the capacity check costs the same at any depth.
-- Triggers keep it, since jobs also go with their subscription or key.
CREATE TABLE queue_size (
    singleton INTEGER PRIMARY KEY CHECK(singleton = 1),
    jobs INTEGER NOT NULL
);
--
INSERT INTO queue_size (singleton, jobs) VALUES (1, 0);
--
CREATE TRIGGER deliveries_inserted AFTER INSERT ON deliveries
BEGIN
    UPDATE queue_size SET jobs = jobs + 1;
END;
--
CREATE TRIGGER deliveries_deleted AFTER DELETE ON deliveries
BEGIN
    UPDATE queue_size SET jobs = jobs - 1;
END;
--
-- What each process says about itself; /health and `telegrammer status` read it.
CREATE TABLE components (
    name TEXT PRIMARY KEY,
    pid INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    since INTEGER NOT NULL,
    heartbeat INTEGER NOT NULL,
    consecutive_failures INTEGER NOT NULL DEFAULT 0,
    last_success_at INTEGER,
    update_id INTEGER
);
