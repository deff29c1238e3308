-- Schedules, what became of their firings, and which workflows have changed since
-- the schedules of their definitions were looked at (language §8).

-- +goose Up
CREATE TABLE schedule (
  id          TEXT NOT NULL PRIMARY KEY,
  workflow    TEXT NOT NULL,
  -- the version that it stands in; '' for one that was added
  version     TEXT NOT NULL,
  name        TEXT NOT NULL,
  -- what the member schedule of a trigger holds, as JSON
  spec        BLOB NOT NULL,
  paused_at   INTEGER,
  paused_by   TEXT,
  -- the next firing, and when it is to be handled; NULL: there is none
  next_at     INTEGER,
  due_at      INTEGER,
  -- the firing whose run is being started
  starting_at INTEGER,
  -- the run of the last firing that has started one
  run         TEXT,
  -- how many firings wait for the end of a run
  waiting     INTEGER NOT NULL,
  -- counts the changes of the row
  seq         INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  created_by  TEXT NOT NULL,
  updated_by  TEXT NOT NULL
) STRICT;

CREATE INDEX schedule_workflow ON schedule (workflow);
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE name <> '';
CREATE INDEX schedule_due ON schedule (due_at) WHERE paused_at IS NULL;
CREATE INDEX schedule_open ON schedule (id) WHERE starting_at IS NOT NULL OR waiting > 0;

CREATE TABLE schedule_firing (
  schedule    TEXT NOT NULL,
  -- the time of the firing, and that with its jitter
  at          INTEGER NOT NULL,
  due_at      INTEGER NOT NULL,
  state       TEXT NOT NULL,
  run         TEXT,
  reason      TEXT,
  backfill    INTEGER NOT NULL,
  recorded_at INTEGER NOT NULL,
  PRIMARY KEY (schedule, at)
) STRICT;

CREATE INDEX schedule_firing_waits ON schedule_firing (schedule, at) WHERE state = 'waiting';

-- How often the versions or aliases of a workflow have changed, and up to where
-- its schedules were made to agree.
CREATE TABLE schedule_change (
  workflow    TEXT NOT NULL PRIMARY KEY,
  news        INTEGER NOT NULL,
  seen        INTEGER NOT NULL
) STRICT;

CREATE INDEX schedule_change_open ON schedule_change (workflow) WHERE news > seen;

INSERT INTO schedule_change (workflow, news, seen) SELECT DISTINCT workflow, 1, 0 FROM definition;

-- +goose Down
DROP TABLE schedule_change;
DROP TABLE schedule_firing;
DROP TABLE schedule;
