-- Circuit breakers: one row for each agent whose circuit was ever open, and the
-- log of what belongs to an agent and to no run.

-- +goose Up
-- JSON; NULL: the record names no breaker
ALTER TABLE agents ADD COLUMN breaker BLOB;

CREATE TABLE agent_breaker (
  agent    TEXT NOT NULL PRIMARY KEY,
  state    TEXT NOT NULL,
  manual   INTEGER NOT NULL,
  since    INTEGER NOT NULL,
  -- when it may be tried, or tried by another bridge
  until    INTEGER,
  reason   TEXT,
  changed_by TEXT,
  -- the bridge that tries it
  holder   TEXT,
  openings INTEGER NOT NULL,
  version  INTEGER NOT NULL
) STRICT;
CREATE INDEX agent_breaker_state ON agent_breaker (state, agent);

CREATE TABLE agent_event (
  agent TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  type  TEXT NOT NULL,
  -- JSON
  data  BLOB NOT NULL,
  PRIMARY KEY (agent, seq)
) STRICT;

-- +goose Down
DROP TABLE agent_event;
DROP TABLE agent_breaker;
ALTER TABLE agents DROP COLUMN breaker;
