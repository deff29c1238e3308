-- AD-14: what was found out about an agent, as JSON; NULL if nobody looked.

-- +goose Up
ALTER TABLE agents ADD COLUMN detected BYTEA;

-- +goose Down
ALTER TABLE agents DROP COLUMN detected;
