-- Bridges that are long gone are forgotten.

-- +goose Up
-- +goose StatementBegin
-- When it was declared dead, NULL while it is not.
ALTER TABLE worker ADD COLUMN died_at BIGINT;
UPDATE worker SET died_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE dead = 1;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DELETE FROM worker WHERE name = '';
ALTER TABLE worker DROP COLUMN died_at;
-- +goose StatementEnd
