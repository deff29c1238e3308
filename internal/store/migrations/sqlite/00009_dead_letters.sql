-- What was given up: tasks that have used up their policies, and records of the
-- bus that nobody can handle. Values stand last: lists need not read them.

-- +goose Up
CREATE TABLE dead_letter (
  id              TEXT    NOT NULL PRIMARY KEY,
  kind            TEXT    NOT NULL,
  state           TEXT    NOT NULL,
  code            TEXT    NOT NULL,
  reason          TEXT    NOT NULL,
  attempts        INTEGER NOT NULL,
  agent           TEXT,
  workflow        TEXT,
  run             TEXT,
  step            TEXT,
  task            TEXT,
  http_status     INTEGER NOT NULL,
  -- NULL for tasks
  source_subject  TEXT,
  source_topic    TEXT,
  source_partition INTEGER,
  source_offset   INTEGER,
  source_group    TEXT,
  first_failed_at INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  resolved_at     INTEGER,
  resolved_by     TEXT,
  note            TEXT,
  replays         INTEGER NOT NULL,
  replay_run      TEXT,
  size            INTEGER NOT NULL,
  digest          TEXT,
  cut             INTEGER NOT NULL,
  tombstone       INTEGER NOT NULL,
  -- the bytes of this row, about
  kept            INTEGER NOT NULL,
  -- until then somebody is replaying it
  busy_until      INTEGER NOT NULL,
  -- when its copy may be published, NULL when it was
  copy_at         INTEGER,
  record_key      BLOB,
  -- JSON
  headers         BLOB,
  value           BLOB
) STRICT;
CREATE INDEX dead_letter_created ON dead_letter (created_at, id);
CREATE INDEX dead_letter_state ON dead_letter (state, created_at, id);
CREATE INDEX dead_letter_run ON dead_letter (run) WHERE run IS NOT NULL;
CREATE INDEX dead_letter_copy ON dead_letter (copy_at) WHERE copy_at IS NOT NULL;

-- +goose Down
DROP TABLE dead_letter;
