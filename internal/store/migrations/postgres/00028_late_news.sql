-- The run that has not taken notice of a late answer yet. Foreign tasks have no run
-- here, and what came before this was known is old news: NULL.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE late ADD COLUMN news_for TEXT COLLATE "C";
CREATE INDEX late_news ON late (news_for) WHERE news_for IS NOT NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX late_news;
ALTER TABLE late DROP COLUMN news_for;
-- +goose StatementEnd
