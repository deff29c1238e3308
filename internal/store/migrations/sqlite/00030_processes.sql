-- By which bus the processes of a database find each other: a row for each that is
-- at work, which renews it. Those of one database have to use the same.

-- +goose Up
CREATE TABLE process (
  id      TEXT    NOT NULL,
  name    TEXT    NOT NULL,
  bus     TEXT    NOT NULL,
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (id)
) STRICT;

-- +goose Down
DROP TABLE process;
