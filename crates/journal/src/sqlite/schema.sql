-- Format 1 of the journal.
--
-- The bytes in `body` are the truth; every other table is made from them and can be checked against
-- them. Words that repeat (ids, types) are numbered in `name`, so that a row and each of its index
-- entries is a few small numbers.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE name (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    -- Events that named it, those removed by retention included: for a conversation, its newest seq.
    uses INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE event (
    pos INTEGER PRIMARY KEY,
    -- Nanoseconds since 1970.
    time INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    conversation INTEGER,
    agent INTEGER,
    thread INTEGER,
    task INTEGER,
    id TEXT NOT NULL
);

CREATE INDEX event_kind ON event (kind, pos);
CREATE INDEX event_conversation ON event (conversation, kind, pos) WHERE conversation IS NOT NULL;
CREATE INDEX event_agent ON event (agent, kind, pos) WHERE agent IS NOT NULL;
CREATE INDEX event_thread ON event (thread, kind, pos) WHERE thread IS NOT NULL;
CREATE INDEX event_task ON event (task, kind, pos) WHERE task IS NOT NULL;
CREATE INDEX event_id ON event (id);

CREATE TABLE body (
    pos INTEGER PRIMARY KEY,
    hash BLOB NOT NULL,
    bytes BLOB NOT NULL
);

-- Earliest and latest time of each 1024 positions: a range of times becomes a range of positions.
CREATE TABLE span (
    block INTEGER PRIMARY KEY,
    earliest INTEGER NOT NULL,
    latest INTEGER NOT NULL
);

-- The newest event that names a body of the content store.
CREATE TABLE content (
    digest TEXT PRIMARY KEY,
    last_pos INTEGER NOT NULL
) WITHOUT ROWID;
