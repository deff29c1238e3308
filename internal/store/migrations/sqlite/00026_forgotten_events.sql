-- +goose Up
-- Only those events are forgotten of which nothing is to be started.
DROP INDEX signal_old;
CREATE INDEX signal_old ON signal (at) WHERE starts_at = 0;

-- +goose Down
DROP INDEX signal_old;
CREATE INDEX signal_old ON signal (at);
