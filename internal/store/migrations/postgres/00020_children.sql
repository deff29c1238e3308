-- Runs that steps of other runs have started (language rule S11).

-- +goose Up
-- +goose StatementBegin
-- NULL: no run has started it.
ALTER TABLE run ADD COLUMN parent_run TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN parent_step TEXT COLLATE "C";
CREATE INDEX run_parent ON run (parent_run, created_at, id) WHERE parent_run IS NOT NULL;

-- A run that a step asks for, from the decision that asks until the one that takes
-- notice of its end.
CREATE TABLE child (
  -- the attempt of the step: there is one run of it at most
  task        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  parent      TEXT COLLATE "C" NOT NULL,
  -- the path of the step's execution
  step        TEXT COLLATE "C" NOT NULL,
  -- asked, started, ended or void: none will begin
  state       TEXT COLLATE "C" NOT NULL,
  -- NULL: none has begun
  run         TEXT COLLATE "C",
  -- what is to be started, as JSON, and with what
  spec        BYTEA NOT NULL,
  input       BYTEA NOT NULL,
  -- why none could begin, as JSON
  error       BYTEA,
  -- it is not begun while its parent is paused
  held        BIGINT NOT NULL,
  -- nobody waits for its end
  detached    BIGINT NOT NULL,
  -- the parent has not taken notice of what the state is
  news        BIGINT NOT NULL,
  -- cancel or terminate: the run is asked to end. NULL: it is not
  stop        TEXT COLLATE "C",
  -- the parent waits no more
  abandoned   BIGINT NOT NULL
);
CREATE INDEX child_parent ON child (parent);
CREATE INDEX child_asked ON child (task) WHERE state = 'asked' AND held = 0;
CREATE INDEX child_news ON child (parent) WHERE news = 1;
CREATE INDEX child_stop ON child (task) WHERE stop IS NOT NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE child;
DROP INDEX run_parent;
ALTER TABLE run DROP COLUMN parent_step;
ALTER TABLE run DROP COLUMN parent_run;
-- +goose StatementEnd
