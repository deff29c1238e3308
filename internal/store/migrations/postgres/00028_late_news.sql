-- Late answers of which their run has not taken notice (news = 1). Foreign tasks have
-- no run here, and those that came before this was known are old news.

-- +goose Up
ALTER TABLE late ADD COLUMN news BIGINT NOT NULL DEFAULT 0;
CREATE INDEX late_news ON late (attempt) WHERE news = 1;

-- +goose Down
DROP INDEX late_news;
ALTER TABLE late DROP COLUMN news;
