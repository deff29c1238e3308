-- Values that are kept apart: one row per object that a run refers to. The row of
-- an object that was collected has no run: nothing may refer to that one any more.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE value_ref (
  object TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  run    TEXT COLLATE "C" NOT NULL,
  -- what the value is, and how long
  digest TEXT COLLATE "C" NOT NULL,
  size   BIGINT NOT NULL,
  at     BIGINT NOT NULL
);
CREATE INDEX value_ref_run ON value_ref (run, digest);

-- A byte 0 at the begin of a value is a frame from now on: a value that begins
-- with it gets one.
UPDATE attempt SET input = '\x0076'::bytea || input WHERE substr(input, 1, 1) = '\x00'::bytea;
UPDATE attempt SET output = '\x0076'::bytea || output WHERE substr(output, 1, 1) = '\x00'::bytea;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- Whoever knows nothing of values that are kept apart would take what is left of
-- them for the whole: there is no way back while there are any.
CREATE TABLE values_are_kept_apart (number BIGINT CHECK (number = 0));
INSERT INTO values_are_kept_apart SELECT count(*) FROM value_ref WHERE run <> '';
DROP TABLE values_are_kept_apart;
UPDATE attempt SET input = substr(input, 3) WHERE substr(input, 1, 2) = '\x0076'::bytea;
UPDATE attempt SET output = substr(output, 3) WHERE substr(output, 1, 2) = '\x0076'::bytea;
DROP TABLE value_ref;
-- +goose StatementEnd
