-- Schedules, what became of their firings, and which workflows have changed since
-- the schedules of their definitions were looked at (language §8).

-- +goose Up
-- +goose StatementBegin
CREATE TABLE schedule (
  id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  workflow    TEXT COLLATE "C" NOT NULL,
  -- the version that it stands in; '' for one that was added
  version     TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  -- what the member schedule of a trigger holds, as JSON
  spec        BYTEA NOT NULL,
  paused_at   BIGINT,
  paused_by   TEXT COLLATE "C",
  -- the next firing, and when it is to be handled; NULL: there is none
  next_at     BIGINT,
  due_at      BIGINT,
  -- the firing whose run is being started
  starting_at BIGINT,
  -- the run of the last firing that has started one
  run         TEXT COLLATE "C",
  -- how many firings wait for the end of a run
  waiting     BIGINT NOT NULL,
  -- counts the changes of the row
  seq         BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  created_by  TEXT COLLATE "C" NOT NULL,
  updated_by  TEXT COLLATE "C" NOT NULL
);

CREATE INDEX schedule_workflow ON schedule (workflow);
CREATE UNIQUE INDEX schedule_name ON schedule (name) WHERE name <> '';
CREATE INDEX schedule_due ON schedule (due_at) WHERE paused_at IS NULL;
CREATE INDEX schedule_open ON schedule (id) WHERE starting_at IS NOT NULL OR waiting > 0;

CREATE TABLE schedule_firing (
  schedule    TEXT COLLATE "C" NOT NULL,
  -- the time of the firing, and that with its jitter
  at          BIGINT NOT NULL,
  due_at      BIGINT NOT NULL,
  state       TEXT COLLATE "C" NOT NULL,
  run         TEXT COLLATE "C",
  reason      TEXT COLLATE "C",
  backfill    BIGINT NOT NULL,
  recorded_at BIGINT NOT NULL,
  PRIMARY KEY (schedule, at)
);

CREATE INDEX schedule_firing_waits ON schedule_firing (schedule, at) WHERE state = 'waiting';

-- How often the versions or aliases of a workflow have changed, and up to where
-- its schedules were made to agree.
CREATE TABLE schedule_change (
  workflow    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  news        BIGINT NOT NULL,
  seen        BIGINT NOT NULL
);

CREATE INDEX schedule_change_open ON schedule_change (workflow) WHERE news > seen;

INSERT INTO schedule_change (workflow, news, seen) SELECT DISTINCT workflow, 1, 0 FROM definition;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE schedule_change;
DROP TABLE schedule_firing;
DROP TABLE schedule;
-- +goose StatementEnd
