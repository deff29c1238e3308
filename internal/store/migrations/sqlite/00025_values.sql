-- Values that are kept apart: one row per object that a run refers to. The row of
-- an object that was collected has no run: nothing may refer to that one any more.

-- +goose Up
CREATE TABLE value_ref (
  object TEXT    NOT NULL PRIMARY KEY,
  run    TEXT    NOT NULL,
  -- what the value is, and how long
  digest TEXT    NOT NULL,
  size   INTEGER NOT NULL,
  at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX value_ref_run ON value_ref (run, digest);

-- A byte 0 at the begin of a value is a frame from now on: a value that begins
-- with it gets one.
UPDATE attempt SET input = unhex('0076' || hex(input)) WHERE substr(input, 1, 1) = x'00';
UPDATE attempt SET output = unhex('0076' || hex(output)) WHERE substr(output, 1, 1) = x'00';

-- +goose Down
UPDATE attempt SET input = substr(input, 3) WHERE substr(input, 1, 2) = x'0076';
UPDATE attempt SET output = substr(output, 3) WHERE substr(output, 1, 2) = x'0076';
DROP TABLE value_ref;
