-- Tasks of executors of the existing platform (protocol.md §4.12): their rows
-- have hand_off 'foreign' and no run.

-- +goose Up
-- +goose StatementBegin
DROP INDEX attempt_settled;
CREATE INDEX attempt_settled ON attempt (run, hand_off) WHERE state = 'settled' AND (hand_off IS NULL OR hand_off = 'bus');
CREATE INDEX attempt_foreign ON attempt (visible_at) WHERE hand_off = 'foreign' AND state IN ('open', 'settled');
CREATE INDEX attempt_foreign_closed ON attempt (settled_at) WHERE hand_off = 'foreign' AND state = 'closed';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX attempt_foreign_closed;
DROP INDEX attempt_foreign;
DROP INDEX attempt_settled;
CREATE INDEX attempt_settled ON attempt (run) WHERE state = 'settled';
-- +goose StatementEnd
