-- Times are microseconds since 1970 UTC, NULL for none. Truth values are 0 and 1.
-- Values of workflows are BLOBs and are never looked into.

-- +goose Up
CREATE TABLE agents (
  id             TEXT    NOT NULL PRIMARY KEY,
  name           TEXT    NOT NULL UNIQUE,
  url            TEXT    NOT NULL,
  description    TEXT    NOT NULL DEFAULT '',
  auth_type      TEXT    NOT NULL DEFAULT 'none',
  auth_header    TEXT    NOT NULL DEFAULT '',
  -- a reference, or "sealed:" and a ciphertext; never a secret itself
  auth_secret    TEXT    NOT NULL DEFAULT '',
  timeout_ms     INTEGER NOT NULL DEFAULT 30000,
  -- JSON: max_retries, initial_delay_ms, max_delay_ms, backoff_multiplier
  retry_config   TEXT    NOT NULL DEFAULT '{}',
  outcome_unknown TEXT   NOT NULL DEFAULT '',
  idempotent     INTEGER NOT NULL DEFAULT 0,
  max_concurrent INTEGER NOT NULL DEFAULT 0,
  status         TEXT    NOT NULL DEFAULT 'active',
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  created_by     TEXT    NOT NULL DEFAULT '',
  updated_by     TEXT    NOT NULL DEFAULT ''
) STRICT;

-- One row per deployed version. Several versions may carry one id: those that
-- were made by replacing under the same id; (workflow, version) is the version.
CREATE TABLE definition (
  workflow    TEXT    NOT NULL,
  number      INTEGER NOT NULL,
  version     TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  description TEXT    NOT NULL DEFAULT '',
  format      TEXT    NOT NULL,
  source      BLOB    NOT NULL,
  digest      TEXT    NOT NULL,
  status      TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  created_by  TEXT    NOT NULL DEFAULT '',
  updated_by  TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (workflow, number),
  UNIQUE (workflow, version)
) STRICT;
CREATE INDEX definition_id ON definition (id);
CREATE INDEX definition_name ON definition (name);

CREATE TABLE run (
  id              TEXT    NOT NULL PRIMARY KEY,
  workflow        TEXT    NOT NULL,
  name            TEXT    NOT NULL,
  version         TEXT    NOT NULL,
  definition_id   TEXT    NOT NULL,
  -- the newest event; the only fence that an executor has
  seq             INTEGER NOT NULL,
  status          TEXT    NOT NULL,
  phase           TEXT,
  paused          INTEGER NOT NULL,
  cancelling      INTEGER NOT NULL,
  hidden          INTEGER NOT NULL,
  labels          TEXT,
  retried_from    TEXT,
  triggered_by    TEXT,
  error           BLOB,
  cancelled_by    TEXT,
  cancel_reason   TEXT,
  due             INTEGER,
  idempotency_key TEXT,
  input_digest    TEXT,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  started_at      INTEGER,
  ended_at        INTEGER
) STRICT;
CREATE INDEX run_live ON run (due) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX run_idempotency ON run (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX run_created ON run (created_at);
CREATE INDEX run_workflow ON run (workflow, created_at);
CREATE INDEX run_failed ON run (status, created_at) WHERE status IN ('FAILED', 'CANCELLED');

-- One row per decision: the events seq to last as a JSON array.
CREATE TABLE event (
  run  TEXT    NOT NULL,
  seq  INTEGER NOT NULL,
  last INTEGER NOT NULL,
  data BLOB    NOT NULL,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- One row per attempt of a step: outbox, claim, deferral and result at once.
-- The id is "{run}.{path}.{number}".
CREATE TABLE attempt (
  id               TEXT    NOT NULL PRIMARY KEY,
  run              TEXT    NOT NULL,
  step             TEXT    NOT NULL,
  number           INTEGER NOT NULL,
  agent            TEXT    NOT NULL,
  input            BLOB    NOT NULL,
  correlation_id   TEXT,
  context_id       TEXT,
  deadline         INTEGER,
  policy           TEXT    NOT NULL,
  attempt_timeout  INTEGER NOT NULL,
  silence          INTEGER NOT NULL,
  state            TEXT    NOT NULL,
  held             INTEGER NOT NULL,
  visible_at       INTEGER NOT NULL,
  owner            TEXT,
  owner_inc        INTEGER,
  token            TEXT,
  orphanings       INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  agent_task_id    TEXT,
  agent_context_id TEXT,
  outcome          TEXT,
  output           BLOB,
  -- JSON: what the result holds besides
  meta             BLOB,
  scheduled_at     INTEGER NOT NULL,
  claimed_at       INTEGER,
  settled_at       INTEGER
) STRICT;
CREATE INDEX attempt_visible ON attempt (visible_at) WHERE state = 'open';
CREATE INDEX attempt_settled ON attempt (run) WHERE state = 'settled';
CREATE INDEX attempt_owner ON attempt (owner, owner_inc) WHERE state IN ('claimed', 'following');

-- One row per bridge process: the lease of all its claims.
CREATE TABLE worker (
  name          TEXT    NOT NULL PRIMARY KEY,
  inc           INTEGER NOT NULL,
  beat          INTEGER NOT NULL,
  dead          INTEGER NOT NULL,
  registered_at INTEGER NOT NULL
) STRICT;

-- Answers that came after the end: shown, never acted upon.
CREATE TABLE late (
  id      INTEGER NOT NULL PRIMARY KEY,
  attempt TEXT    NOT NULL,
  at      INTEGER NOT NULL,
  source  TEXT    NOT NULL,
  outcome TEXT    NOT NULL,
  output  BLOB,
  meta    BLOB
) STRICT;
CREATE INDEX late_attempt ON late (attempt);

-- +goose Down
DROP TABLE late;
DROP TABLE worker;
DROP TABLE attempt;
DROP TABLE event;
DROP TABLE run;
DROP TABLE definition;
DROP TABLE agents;
