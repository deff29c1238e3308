-- Attempts of steps that have another agent do not wait for an open circuit.

-- +goose Up
-- +goose StatementBegin
-- NULL: as the agent's record says.
ALTER TABLE attempt ADD COLUMN on_open TEXT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE attempt DROP COLUMN on_open;
-- +goose StatementEnd
