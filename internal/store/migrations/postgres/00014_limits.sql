-- Limits of agents beside max_concurrent, and their share among those that wait;
-- priority of runs.

-- +goose Up
-- +goose StatementBegin
-- JSON; NULL: all defaults
ALTER TABLE agents ADD COLUMN limits BYTEA;
-- 0: the default
ALTER TABLE agents ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;
-- levels above the default priority of a run
ALTER TABLE attempt ADD COLUMN urgency BIGINT NOT NULL DEFAULT 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE attempt DROP COLUMN urgency;
ALTER TABLE agents DROP COLUMN priority;
ALTER TABLE agents DROP COLUMN limits;
-- +goose StatementEnd
