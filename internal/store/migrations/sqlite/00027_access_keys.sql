-- Keys to the REST interface: digests of their secrets, never those themselves.

-- +goose Up
CREATE TABLE access_key (
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  digest     BLOB    NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT    NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  used_at    INTEGER,
  PRIMARY KEY (name)
) STRICT;
CREATE UNIQUE INDEX access_key_digest ON access_key (digest);

-- +goose Down
DROP TABLE access_key;
