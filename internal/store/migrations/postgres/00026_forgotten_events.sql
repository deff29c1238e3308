-- +goose Up
-- +goose StatementBegin
-- Only those events are forgotten of which nothing is to be started.
DROP INDEX signal_old;
CREATE INDEX signal_old ON signal (at) WHERE starts_at = 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX signal_old;
CREATE INDEX signal_old ON signal (at);
-- +goose StatementEnd
