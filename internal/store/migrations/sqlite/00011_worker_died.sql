-- Bridges that are long gone are forgotten.

-- +goose Up
-- When it was declared dead, NULL while it is not.
ALTER TABLE worker ADD COLUMN died_at INTEGER;
UPDATE worker SET died_at = unixepoch() * 1000000 WHERE dead = 1;

-- +goose Down
DELETE FROM worker WHERE name = '';
ALTER TABLE worker DROP COLUMN died_at;
