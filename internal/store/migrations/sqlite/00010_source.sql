-- Where the record stood that a bridge took an attempt from, as JSON; NULL if
-- nobody did, or if the bus keeps no positions. See Source.

-- +goose Up
ALTER TABLE attempt ADD COLUMN source BLOB;

-- +goose Down
ALTER TABLE attempt DROP COLUMN source;
