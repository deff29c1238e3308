-- What was given up: tasks that have used up their policies, and records of the
-- bus that nobody can handle. Values stand last: lists need not read them.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE dead_letter (
  id              TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
  kind            TEXT COLLATE "C"    NOT NULL,
  state           TEXT COLLATE "C"    NOT NULL,
  code            TEXT COLLATE "C"    NOT NULL,
  reason          TEXT COLLATE "C"    NOT NULL,
  attempts        BIGINT NOT NULL,
  agent           TEXT COLLATE "C",
  workflow        TEXT COLLATE "C",
  run             TEXT COLLATE "C",
  step            TEXT COLLATE "C",
  task            TEXT COLLATE "C",
  http_status     BIGINT NOT NULL,
  -- NULL for tasks
  source_subject  TEXT COLLATE "C",
  source_topic    TEXT COLLATE "C",
  source_partition BIGINT,
  source_offset   BIGINT,
  source_group    TEXT COLLATE "C",
  first_failed_at BIGINT NOT NULL,
  created_at      BIGINT NOT NULL,
  resolved_at     BIGINT,
  resolved_by     TEXT COLLATE "C",
  note            TEXT COLLATE "C",
  replays         BIGINT NOT NULL,
  replay_run      TEXT COLLATE "C",
  size            BIGINT NOT NULL,
  digest          TEXT COLLATE "C",
  cut             BIGINT NOT NULL,
  tombstone       BIGINT NOT NULL,
  -- the bytes of this row, about
  kept            BIGINT NOT NULL,
  -- until then somebody is replaying it
  busy_until      BIGINT NOT NULL,
  -- when its copy may be published, NULL when it was
  copy_at         BIGINT,
  record_key      BYTEA,
  -- JSON
  headers         BYTEA,
  value           BYTEA
);
CREATE INDEX dead_letter_created ON dead_letter (created_at, id);
CREATE INDEX dead_letter_state ON dead_letter (state, created_at, id);
CREATE INDEX dead_letter_run ON dead_letter (run) WHERE run IS NOT NULL;
CREATE INDEX dead_letter_copy ON dead_letter (copy_at) WHERE copy_at IS NOT NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE dead_letter;
-- +goose StatementEnd
