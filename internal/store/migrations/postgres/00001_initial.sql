-- Times are microseconds since 1970 UTC, NULL for none. Truth values are 0 and 1.
-- Values of workflows are BYTEA and are never looked into. Texts are compared
-- byte for byte, whatever the collation of the database is.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE agents (
  id             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  name           TEXT COLLATE "C" NOT NULL UNIQUE,
  url            TEXT COLLATE "C" NOT NULL,
  description    TEXT COLLATE "C" NOT NULL DEFAULT '',
  auth_type      TEXT COLLATE "C" NOT NULL DEFAULT 'none',
  auth_header    TEXT COLLATE "C" NOT NULL DEFAULT '',
  -- a reference, or "sealed:" and a ciphertext; never a secret itself
  auth_secret    TEXT COLLATE "C" NOT NULL DEFAULT '',
  timeout_ms     BIGINT NOT NULL DEFAULT 30000,
  -- JSON: max_retries, initial_delay_ms, max_delay_ms, backoff_multiplier
  retry_config   TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  outcome_unknown TEXT COLLATE "C" NOT NULL DEFAULT '',
  idempotent     BIGINT NOT NULL DEFAULT 0,
  max_concurrent BIGINT NOT NULL DEFAULT 0,
  status         TEXT COLLATE "C" NOT NULL DEFAULT 'active',
  created_at     BIGINT NOT NULL,
  updated_at     BIGINT NOT NULL,
  created_by     TEXT COLLATE "C" NOT NULL DEFAULT '',
  updated_by     TEXT COLLATE "C" NOT NULL DEFAULT ''
);

-- One row per deployed version. Several versions may carry one id: those that
-- were made by replacing under the same id; (workflow, version) is the version.
CREATE TABLE definition (
  workflow    TEXT COLLATE "C" NOT NULL,
  number      BIGINT NOT NULL,
  version     TEXT COLLATE "C" NOT NULL,
  id          TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  description TEXT COLLATE "C" NOT NULL DEFAULT '',
  format      TEXT COLLATE "C" NOT NULL,
  source      BYTEA NOT NULL,
  digest      TEXT COLLATE "C" NOT NULL,
  status      TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  created_by  TEXT COLLATE "C" NOT NULL DEFAULT '',
  updated_by  TEXT COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (workflow, number),
  UNIQUE (workflow, version)
);
CREATE INDEX definition_id ON definition (id);
CREATE INDEX definition_name ON definition (name);

CREATE TABLE run (
  id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workflow        TEXT COLLATE "C" NOT NULL,
  name            TEXT COLLATE "C" NOT NULL,
  version         TEXT COLLATE "C" NOT NULL,
  definition_id   TEXT COLLATE "C" NOT NULL,
  -- the newest event; the only fence that an executor has
  seq             BIGINT NOT NULL,
  status          TEXT COLLATE "C" NOT NULL,
  phase           TEXT COLLATE "C",
  paused          BIGINT NOT NULL,
  cancelling      BIGINT NOT NULL,
  hidden          BIGINT NOT NULL,
  labels          TEXT COLLATE "C",
  retried_from    TEXT COLLATE "C",
  triggered_by    TEXT COLLATE "C",
  error           BYTEA,
  cancelled_by    TEXT COLLATE "C",
  cancel_reason   TEXT COLLATE "C",
  due             BIGINT,
  idempotency_key TEXT COLLATE "C",
  input_digest    TEXT COLLATE "C",
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  started_at      BIGINT,
  ended_at        BIGINT
);
CREATE INDEX run_live ON run (due) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX run_idempotency ON run (workflow, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX run_created ON run (created_at);
CREATE INDEX run_workflow ON run (workflow, created_at);
CREATE INDEX run_failed ON run (status, created_at) WHERE status IN ('FAILED', 'CANCELLED');

-- One row per decision: the events seq to last as a JSON array.
CREATE TABLE event (
  run  TEXT COLLATE "C" NOT NULL,
  seq  BIGINT NOT NULL,
  last BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (run, seq)
);

-- One row per attempt of a step: outbox, claim, deferral and result at once.
-- The id is "{run}.{path}.{number}".
CREATE TABLE attempt (
  id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  run              TEXT COLLATE "C" NOT NULL,
  step             TEXT COLLATE "C" NOT NULL,
  number           BIGINT NOT NULL,
  agent            TEXT COLLATE "C" NOT NULL,
  input            BYTEA NOT NULL,
  correlation_id   TEXT COLLATE "C",
  context_id       TEXT COLLATE "C",
  deadline         BIGINT,
  policy           TEXT COLLATE "C" NOT NULL,
  attempt_timeout  BIGINT NOT NULL,
  silence          BIGINT NOT NULL,
  state            TEXT COLLATE "C" NOT NULL,
  held             BIGINT NOT NULL,
  visible_at       BIGINT NOT NULL,
  owner            TEXT COLLATE "C",
  owner_inc        BIGINT,
  token            TEXT COLLATE "C",
  orphanings       BIGINT NOT NULL DEFAULT 0,
  cancel_requested BIGINT NOT NULL DEFAULT 0,
  agent_task_id    TEXT COLLATE "C",
  agent_context_id TEXT COLLATE "C",
  outcome          TEXT COLLATE "C",
  output           BYTEA,
  -- JSON: what the result holds besides
  meta             BYTEA,
  scheduled_at     BIGINT NOT NULL,
  claimed_at       BIGINT,
  settled_at       BIGINT
);
CREATE INDEX attempt_visible ON attempt (visible_at) WHERE state = 'open';
CREATE INDEX attempt_settled ON attempt (run) WHERE state = 'settled';
CREATE INDEX attempt_owner ON attempt (owner, owner_inc) WHERE state IN ('claimed', 'following');

-- One row per bridge process: the lease of all its claims.
CREATE TABLE worker (
  name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  inc           BIGINT NOT NULL,
  beat          BIGINT NOT NULL,
  dead          BIGINT NOT NULL,
  registered_at BIGINT NOT NULL
);

-- Answers that came after the end: shown, never acted upon.
CREATE TABLE late (
  id      BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  attempt TEXT COLLATE "C" NOT NULL,
  at      BIGINT NOT NULL,
  source  TEXT COLLATE "C" NOT NULL,
  outcome TEXT COLLATE "C" NOT NULL,
  output  BYTEA,
  meta    BYTEA
);
CREATE INDEX late_attempt ON late (attempt);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE late;
DROP TABLE worker;
DROP TABLE attempt;
DROP TABLE event;
DROP TABLE run;
DROP TABLE definition;
DROP TABLE agents;
-- +goose StatementEnd
