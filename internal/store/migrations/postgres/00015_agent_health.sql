-- Health of agents: one row for each agent that was looked at, and the index by
-- which the newest calls of an agent are found.

-- +goose Up
-- +goose StatementBegin
-- JSON; NULL: the record does not say how the agent is looked at
ALTER TABLE agents ADD COLUMN health BYTEA;

CREATE TABLE agent_health (
  agent       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  -- unknown, healthy or unhealthy
  status      TEXT COLLATE "C" NOT NULL,
  message     TEXT COLLATE "C",
  -- of the newest look, in microseconds
  took        BIGINT NOT NULL,
  checked_at  BIGINT,
  changed_at  BIGINT,
  -- looks in a row that have failed
  failures    BIGINT NOT NULL,
  -- of the card that was seen last
  card_hash   TEXT COLLATE "C",
  -- nobody looks before
  next_at     BIGINT NOT NULL,
  -- who looks now, or looked last
  token       TEXT COLLATE "C" NOT NULL
);

CREATE INDEX attempt_called ON attempt (agent, settled_at, claimed_at, outcome) WHERE settled_at IS NOT NULL AND claimed_at IS NOT NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX attempt_called;
DROP TABLE agent_health;
ALTER TABLE agents DROP COLUMN health;
-- +goose StatementEnd
