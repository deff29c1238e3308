-- Runs that are over leave again: what they are found by, those that have left
-- without all of their rows, and who looks for them.

-- +goose Up
-- +goose StatementBegin
CREATE INDEX run_ended ON run (workflow, ended_at, id) WHERE ended_at IS NOT NULL;

-- Runs that are gone, and of which there are events or attempts yet.
CREATE TABLE removed_run (
  id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  removed_at BIGINT NOT NULL
);

CREATE TABLE retention (
  -- there is one row
  name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  holder TEXT COLLATE "C" NOT NULL,
  -- then the next one may take it
  until  BIGINT NOT NULL
);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE retention;
-- Nobody would ever remove them.
DELETE FROM late WHERE attempt IN (SELECT a.id FROM attempt a JOIN removed_run r ON r.id = a.run);
DELETE FROM attempt WHERE run IN (SELECT id FROM removed_run);
DELETE FROM event WHERE run IN (SELECT id FROM removed_run);
DROP TABLE removed_run;
DROP INDEX run_ended;
-- +goose StatementEnd
