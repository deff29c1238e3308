-- Runs that share a bound of how many of them run at the same time (language.md
-- §1, concurrency).

-- +goose Up
-- +goose StatementBegin
-- The runs of one workflow and key that have not ended. Everybody who begins or
-- ends one of them writes this row, so that they do so one after another.
CREATE TABLE lane (
  workflow    TEXT COLLATE "C" NOT NULL,
  lane_key    TEXT COLLATE "C" NOT NULL,
  running     BIGINT NOT NULL,
  waiting     BIGINT NOT NULL,
  -- the place of the run that was accepted last, and whether it began at once
  last        BIGINT NOT NULL,
  began       BIGINT NOT NULL,
  PRIMARY KEY (workflow, lane_key)
);

CREATE INDEX lane_waiting ON lane (workflow, lane_key) WHERE waiting > 0;

-- One of them.
CREATE TABLE turn (
  run         TEXT COLLATE "C" PRIMARY KEY,
  workflow    TEXT COLLATE "C" NOT NULL,
  lane_key    TEXT COLLATE "C" NOT NULL,
  -- the order in which they were accepted
  place       BIGINT NOT NULL,
  -- it is not admitted yet
  waits       BIGINT NOT NULL,
  -- it begins while less than that many run
  most        BIGINT NOT NULL,
  when_full   TEXT COLLATE "C" NOT NULL
);

CREATE INDEX turn_place ON turn (workflow, lane_key, waits, place);
CREATE INDEX turn_cancels ON turn (workflow, lane_key) WHERE waits = 1 AND when_full = 'cancel_oldest';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE turn;
DROP TABLE lane;
-- +goose StatementEnd
