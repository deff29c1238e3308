-- Events that runs wait for, who waits for them, and approvals that are open
-- (language rules C8 and C9).

-- +goose Up
CREATE TABLE signal (
  id          TEXT NOT NULL,
  -- the only run that it is for; '' is all of them
  run         TEXT NOT NULL,
  name        TEXT NOT NULL,
  signal_key  TEXT NOT NULL,
  data        BLOB NOT NULL,
  at          INTEGER NOT NULL,
  -- a run has taken it: it is not one of those that wait
  taken       INTEGER NOT NULL,
  -- the steps that waited then were told of it
  spread      INTEGER NOT NULL,
  PRIMARY KEY (id, run)
) STRICT;

CREATE INDEX signal_name ON signal (name, signal_key, at);
CREATE INDEX signal_waits ON signal (name, signal_key) WHERE taken = 0;
CREATE INDEX signal_new ON signal (at) WHERE spread = 0;
CREATE INDEX signal_old ON signal (at);

-- A step that waits for an event. It has not looked for it since it was told of
-- one if news is more than seen.
CREATE TABLE waiter (
  run         TEXT NOT NULL,
  -- the path of its execution
  step        TEXT NOT NULL,
  name        TEXT NOT NULL,
  signal_key  TEXT NOT NULL,
  -- older events do not count
  since       INTEGER NOT NULL,
  news        INTEGER NOT NULL,
  seen        INTEGER NOT NULL,
  PRIMARY KEY (run, step)
) STRICT;

CREATE INDEX waiter_name ON waiter (name, signal_key);
CREATE INDEX waiter_news ON waiter (run) WHERE news > seen;

-- A step that waits for an approval.
CREATE TABLE approval (
  run         TEXT NOT NULL,
  step        TEXT NOT NULL,
  workflow    TEXT NOT NULL,
  -- who may answer: a line feed before and after each role or user; '' is anybody
  who         TEXT NOT NULL,
  -- what is asked, as JSON
  data        BLOB NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (run, step)
) STRICT;

CREATE INDEX approval_created ON approval (created_at);

-- +goose Down
DROP TABLE approval;
DROP TABLE waiter;
DROP TABLE signal;
