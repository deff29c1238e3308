-- Attempts of steps that have another agent do not wait for an open circuit.

-- +goose Up
-- NULL: as the agent's record says.
ALTER TABLE attempt ADD COLUMN on_open TEXT;

-- +goose Down
ALTER TABLE attempt DROP COLUMN on_open;
