-- Runs that share a bound of how many of them run at the same time (language.md
-- §1, concurrency).

-- +goose Up
-- The runs of one workflow and key that have not ended. Everybody who begins or
-- ends one of them writes this row, so that they do so one after another.
CREATE TABLE lane (
  workflow    TEXT NOT NULL,
  lane_key    TEXT NOT NULL,
  running     INTEGER NOT NULL,
  waiting     INTEGER NOT NULL,
  -- the place of the run that was accepted last, and whether it began at once
  last        INTEGER NOT NULL,
  began       INTEGER NOT NULL,
  PRIMARY KEY (workflow, lane_key)
) STRICT;

CREATE INDEX lane_waiting ON lane (workflow, lane_key) WHERE waiting > 0;

-- One of them.
CREATE TABLE turn (
  run         TEXT PRIMARY KEY,
  workflow    TEXT NOT NULL,
  lane_key    TEXT NOT NULL,
  -- the order in which they were accepted
  place       INTEGER NOT NULL,
  -- it is not admitted yet
  waits       INTEGER NOT NULL,
  -- it begins while less than that many run
  most        INTEGER NOT NULL,
  when_full   TEXT NOT NULL
) STRICT;

CREATE INDEX turn_place ON turn (workflow, lane_key, waits, place);
CREATE INDEX turn_cancels ON turn (workflow, lane_key) WHERE waits = 1 AND when_full = 'cancel_oldest';

-- +goose Down
DROP TABLE turn;
DROP TABLE lane;
