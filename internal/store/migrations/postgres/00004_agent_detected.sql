-- AD-14: what was found out about an agent, as JSON; NULL if nobody looked.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE agents ADD COLUMN detected BYTEA;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE agents DROP COLUMN detected;
-- +goose StatementEnd
