-- What was taken over from the existing platform.

-- +goose Up
-- One row for each of its records: how it was there when it was imported last.
CREATE TABLE imported (
  kind        TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  -- stands for the content there
  digest      TEXT    NOT NULL,
  -- updated_at of what was written here
  stamp       INTEGER NOT NULL,
  imported_at INTEGER NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- Its record of who changed what.
CREATE TABLE audit (
  id          TEXT    NOT NULL PRIMARY KEY,
  at          INTEGER NOT NULL,
  entity_type TEXT    NOT NULL,
  entity_id   TEXT    NOT NULL,
  action      TEXT    NOT NULL,
  actor       TEXT    NOT NULL,
  -- JSON without credentials
  changes     BLOB
) STRICT;
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_entity ON audit (entity_id);

-- +goose Down
DROP TABLE audit;
DROP TABLE imported;
