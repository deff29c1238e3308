-- Keys to the REST interface: digests of their secrets, never those themselves.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE access_key (
  name       TEXT COLLATE "C" NOT NULL,
  role       TEXT COLLATE "C" NOT NULL,
  digest     BYTEA  NOT NULL,
  created_at BIGINT NOT NULL,
  created_by TEXT COLLATE "C" NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  used_at    BIGINT,
  PRIMARY KEY (name)
);
CREATE UNIQUE INDEX access_key_digest ON access_key (digest);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE access_key;
-- +goose StatementEnd
