-- AD-6: agents that were there before speak Simple A2A.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE agents ADD COLUMN protocol TEXT COLLATE "C" NOT NULL DEFAULT 'simple-a2a';
ALTER TABLE agents ADD COLUMN protocol_config BYTEA;
CREATE INDEX agents_protocol ON agents (protocol);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX agents_protocol;
ALTER TABLE agents DROP COLUMN protocol_config;
ALTER TABLE agents DROP COLUMN protocol;
-- +goose StatementEnd
