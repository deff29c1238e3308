-- By which bus the processes of a database find each other: a row for each that is
-- at work, which renews it. Those of one database have to use the same.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE process (
  id      TEXT COLLATE "C" NOT NULL,
  name    TEXT COLLATE "C" NOT NULL,
  bus     TEXT COLLATE "C" NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (id)
);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE process;
-- +goose StatementEnd
