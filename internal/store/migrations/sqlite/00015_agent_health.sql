-- Health of agents: one row for each agent that was looked at, and the index by
-- which the newest calls of an agent are found.

-- +goose Up
-- JSON; NULL: the record does not say how the agent is looked at
ALTER TABLE agents ADD COLUMN health BLOB;

CREATE TABLE agent_health (
  agent       TEXT NOT NULL PRIMARY KEY,
  -- unknown, healthy or unhealthy
  status      TEXT NOT NULL,
  message     TEXT,
  -- of the newest look, in microseconds
  took        INTEGER NOT NULL,
  checked_at  INTEGER,
  changed_at  INTEGER,
  -- looks in a row that have failed
  failures    INTEGER NOT NULL,
  -- of the card that was seen last
  card_hash   TEXT,
  -- nobody looks before
  next_at     INTEGER NOT NULL,
  -- who looks now, or looked last
  token       TEXT NOT NULL
) STRICT;

CREATE INDEX attempt_called ON attempt (agent, settled_at, claimed_at, outcome) WHERE settled_at IS NOT NULL AND claimed_at IS NOT NULL;

-- +goose Down
DROP INDEX attempt_called;
DROP TABLE agent_health;
ALTER TABLE agents DROP COLUMN health;
