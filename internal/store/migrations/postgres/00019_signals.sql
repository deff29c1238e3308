-- Events that runs wait for, who waits for them, and approvals that are open
-- (language rules C8 and C9).

-- +goose Up
-- +goose StatementBegin
CREATE TABLE signal (
  id          TEXT COLLATE "C" NOT NULL,
  -- the only run that it is for; '' is all of them
  run         TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  signal_key  TEXT COLLATE "C" NOT NULL,
  data        BYTEA NOT NULL,
  at          BIGINT NOT NULL,
  -- a run has taken it: it is not one of those that wait
  taken       BIGINT NOT NULL,
  -- the steps that waited then were told of it
  spread      BIGINT NOT NULL,
  PRIMARY KEY (id, run)
);

CREATE INDEX signal_name ON signal (name, signal_key, at);
CREATE INDEX signal_waits ON signal (name, signal_key) WHERE taken = 0;
CREATE INDEX signal_new ON signal (at) WHERE spread = 0;
CREATE INDEX signal_old ON signal (at);

-- A step that waits for an event. It has not looked for it since it was told of
-- one if news is more than seen.
CREATE TABLE waiter (
  run         TEXT COLLATE "C" NOT NULL,
  -- the path of its execution
  step        TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  signal_key  TEXT COLLATE "C" NOT NULL,
  -- older events do not count
  since       BIGINT NOT NULL,
  news        BIGINT NOT NULL,
  seen        BIGINT NOT NULL,
  PRIMARY KEY (run, step)
);

CREATE INDEX waiter_name ON waiter (name, signal_key);
CREATE INDEX waiter_news ON waiter (run) WHERE news > seen;

-- A step that waits for an approval.
CREATE TABLE approval (
  run         TEXT COLLATE "C" NOT NULL,
  step        TEXT COLLATE "C" NOT NULL,
  workflow    TEXT COLLATE "C" NOT NULL,
  -- who may answer: a line feed before and after each role or user; '' is anybody
  who         TEXT COLLATE "C" NOT NULL,
  -- what is asked, as JSON
  data        BYTEA NOT NULL,
  created_at  BIGINT NOT NULL,
  PRIMARY KEY (run, step)
);

CREATE INDEX approval_created ON approval (created_at);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE approval;
DROP TABLE waiter;
DROP TABLE signal;
-- +goose StatementEnd
