-- Long tasks: where the agent took one, what it asks, what was answered.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE attempt ADD COLUMN agent_endpoint TEXT COLLATE "C";
ALTER TABLE attempt ADD COLUMN agent_version TEXT COLLATE "C";
-- JSON: what the agent waits for
ALTER TABLE attempt ADD COLUMN question BYTEA;
-- how many it has asked, never set back
ALTER TABLE attempt ADD COLUMN questions BIGINT NOT NULL DEFAULT 0;
-- JSON: the answer to the question
ALTER TABLE attempt ADD COLUMN reply BYTEA;
-- 1: it may have left
ALTER TABLE attempt ADD COLUMN reply_sent BIGINT NOT NULL DEFAULT 0;
-- changes of the question, and how many of them stand in the run's history
ALTER TABLE attempt ADD COLUMN news BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempt ADD COLUMN news_seen BIGINT NOT NULL DEFAULT 0;
CREATE INDEX attempt_news ON attempt (run) WHERE state IN ('claimed', 'following') AND news > news_seen;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX attempt_news;
ALTER TABLE attempt DROP COLUMN news_seen;
ALTER TABLE attempt DROP COLUMN news;
ALTER TABLE attempt DROP COLUMN reply_sent;
ALTER TABLE attempt DROP COLUMN reply;
ALTER TABLE attempt DROP COLUMN questions;
ALTER TABLE attempt DROP COLUMN question;
ALTER TABLE attempt DROP COLUMN agent_version;
ALTER TABLE attempt DROP COLUMN agent_endpoint;
-- +goose StatementEnd
