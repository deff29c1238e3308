-- The run that has not taken notice of a late answer yet. Foreign tasks have no run
-- here, and what came before this was known is old news: NULL.

-- +goose Up
ALTER TABLE late ADD COLUMN news_for TEXT;
CREATE INDEX late_news ON late (news_for) WHERE news_for IS NOT NULL;

-- +goose Down
DROP INDEX late_news;
ALTER TABLE late DROP COLUMN news_for;
