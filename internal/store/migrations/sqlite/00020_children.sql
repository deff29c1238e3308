-- Runs that steps of other runs have started (language rule S11).

-- +goose Up
-- NULL: no run has started it.
ALTER TABLE run ADD COLUMN parent_run TEXT;
ALTER TABLE run ADD COLUMN parent_step TEXT;
CREATE INDEX run_parent ON run (parent_run, created_at, id) WHERE parent_run IS NOT NULL;

-- A run that a step asks for, from the decision that asks until the one that takes
-- notice of its end.
CREATE TABLE child (
  -- the attempt of the step: there is one run of it at most
  task        TEXT NOT NULL PRIMARY KEY,
  parent      TEXT NOT NULL,
  -- the path of the step's execution
  step        TEXT NOT NULL,
  -- asked, started, ended or void: none will begin
  state       TEXT NOT NULL,
  -- NULL: none has begun
  run         TEXT,
  -- what is to be started, as JSON, and with what
  spec        BLOB NOT NULL,
  input       BLOB NOT NULL,
  -- why none could begin, as JSON
  error       BLOB,
  -- it is not begun while its parent is paused
  held        INTEGER NOT NULL,
  -- nobody waits for its end
  detached    INTEGER NOT NULL,
  -- the parent has not taken notice of what the state is
  news        INTEGER NOT NULL,
  -- cancel or terminate: the run is asked to end. NULL: it is not
  stop        TEXT,
  -- the parent waits no more
  abandoned   INTEGER NOT NULL
) STRICT;
CREATE INDEX child_parent ON child (parent);
CREATE INDEX child_asked ON child (task) WHERE state = 'asked' AND held = 0;
CREATE INDEX child_news ON child (parent) WHERE news = 1;
CREATE INDEX child_stop ON child (task) WHERE stop IS NOT NULL;

-- +goose Down
DROP TABLE child;
DROP INDEX run_parent;
ALTER TABLE run DROP COLUMN parent_step;
ALTER TABLE run DROP COLUMN parent_run;
