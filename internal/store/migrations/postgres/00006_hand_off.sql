-- Old peers (protocol.md §4.12): who an attempt was handed to, NULL for the
-- bridges that claim in the store.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE attempt ADD COLUMN hand_off TEXT COLLATE "C";
-- 1: while it was open it may have been put on the bus
ALTER TABLE attempt ADD COLUMN published BIGINT NOT NULL DEFAULT 0;
-- When an attempt that was handed to the bus has had its time; see handOffEnd.
CREATE INDEX attempt_overdue ON attempt (
  (claimed_at + CASE WHEN attempt_timeout > 0 AND (silence = 0 OR attempt_timeout < silence) THEN attempt_timeout WHEN silence > 0 THEN silence END)
) WHERE state = 'claimed' AND hand_off = 'bus';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX attempt_overdue;
ALTER TABLE attempt DROP COLUMN published;
ALTER TABLE attempt DROP COLUMN hand_off;
-- +goose StatementEnd
