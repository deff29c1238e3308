-- JSON: what an agent's authentication has besides auth_type, auth_header and
-- auth_secret, and its TLS settings. References, or "sealed:" and a
-- ciphertext; never a secret itself. NULL if there is nothing.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE agents ADD COLUMN auth_config BYTEA;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE agents DROP COLUMN auth_config;
-- +goose StatementEnd
