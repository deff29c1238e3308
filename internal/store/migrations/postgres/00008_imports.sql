-- What was taken over from the existing platform.

-- +goose Up
-- +goose StatementBegin
-- One row for each of its records: how it was there when it was imported last.
CREATE TABLE imported (
  kind        TEXT COLLATE "C" NOT NULL,
  id          TEXT COLLATE "C" NOT NULL,
  -- stands for the content there
  digest      TEXT COLLATE "C" NOT NULL,
  -- updated_at of what was written here
  stamp       BIGINT NOT NULL,
  imported_at BIGINT NOT NULL,
  PRIMARY KEY (kind, id)
);

-- Its record of who changed what.
CREATE TABLE audit (
  id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  at          BIGINT NOT NULL,
  entity_type TEXT COLLATE "C" NOT NULL,
  entity_id   TEXT COLLATE "C" NOT NULL,
  action      TEXT COLLATE "C" NOT NULL,
  actor       TEXT COLLATE "C" NOT NULL,
  -- JSON without credentials
  changes     BYTEA
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_entity ON audit (entity_id);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE audit;
DROP TABLE imported;
-- +goose StatementEnd
