-- Runs that events start (language.md §8): which versions of workflows are started
-- by what, and which events have not started their runs yet.

-- +goose Up
-- +goose StatementBegin
-- What starts a version: an event of a name, or a record of a topic.
CREATE TABLE workflow_trigger (
  workflow   TEXT COLLATE "C" NOT NULL,
  version    TEXT COLLATE "C" NOT NULL,
  kind       TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (workflow, version, kind, name)
);

CREATE INDEX workflow_trigger_name ON workflow_trigger (kind, name);

-- When the event is looked at to start runs; 0 is never: that was done, or there
-- was no such trigger when it came.
ALTER TABLE signal ADD COLUMN starts_at BIGINT NOT NULL DEFAULT 0;
-- How many runs have led to the event, each by an event that it has published.
ALTER TABLE signal ADD COLUMN chain BIGINT NOT NULL DEFAULT 0;

CREATE INDEX signal_starts ON signal (starts_at) WHERE starts_at > 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX signal_starts;
ALTER TABLE signal DROP COLUMN chain;
ALTER TABLE signal DROP COLUMN starts_at;
DROP TABLE workflow_trigger;
-- +goose StatementEnd
