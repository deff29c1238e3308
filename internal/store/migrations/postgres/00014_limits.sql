-- Limits of agents beside max_concurrent, and their share among those that wait.

-- +goose Up
-- JSON; NULL: all defaults
ALTER TABLE agents ADD COLUMN limits BYTEA;
-- 0: the default
ALTER TABLE agents ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE agents DROP COLUMN priority;
ALTER TABLE agents DROP COLUMN limits;
