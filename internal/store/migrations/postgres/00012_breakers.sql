-- Circuit breakers: one row for each agent whose circuit was ever open, and the
-- log of what belongs to an agent and to no run.

-- +goose Up
-- +goose StatementBegin
-- JSON; NULL: the record names no breaker
ALTER TABLE agents ADD COLUMN breaker BYTEA;

CREATE TABLE agent_breaker (
  agent    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  state    TEXT COLLATE "C" NOT NULL,
  manual   BIGINT NOT NULL,
  since    BIGINT NOT NULL,
  -- when it may be tried, or tried by another bridge
  until    BIGINT,
  reason   TEXT COLLATE "C",
  changed_by TEXT COLLATE "C",
  -- the bridge that tries it
  holder   TEXT COLLATE "C",
  openings BIGINT NOT NULL,
  version  BIGINT NOT NULL
);
CREATE INDEX agent_breaker_state ON agent_breaker (state, agent);

CREATE TABLE agent_event (
  agent TEXT COLLATE "C" NOT NULL,
  seq   BIGINT NOT NULL,
  at    BIGINT NOT NULL,
  type  TEXT COLLATE "C" NOT NULL,
  -- JSON
  data  BYTEA NOT NULL,
  PRIMARY KEY (agent, seq)
);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE agent_event;
DROP TABLE agent_breaker;
ALTER TABLE agents DROP COLUMN breaker;
-- +goose StatementEnd
