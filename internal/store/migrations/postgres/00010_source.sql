-- Where the record stood that a bridge took an attempt from, as JSON; NULL if
-- nobody did, or if the bus keeps no positions. See Source.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE attempt ADD COLUMN source BYTEA;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE attempt DROP COLUMN source;
-- +goose StatementEnd
