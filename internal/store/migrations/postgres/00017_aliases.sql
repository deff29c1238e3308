-- Names that stand for versions of workflows, and versions that take no new runs
-- (language rules C10 and S11).

-- +goose Up
-- +goose StatementBegin
CREATE TABLE workflow_alias (
  workflow   TEXT COLLATE "C" NOT NULL,
  alias      TEXT COLLATE "C" NOT NULL,
  version    TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  created_by TEXT COLLATE "C" NOT NULL,
  updated_by TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (workflow, alias)
);

-- NULL: it is not.
ALTER TABLE definition ADD COLUMN deprecated_at BIGINT;
ALTER TABLE definition ADD COLUMN deprecated_by TEXT;
ALTER TABLE definition ADD COLUMN deprecated_reason TEXT;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE definition DROP COLUMN deprecated_reason;
ALTER TABLE definition DROP COLUMN deprecated_by;
ALTER TABLE definition DROP COLUMN deprecated_at;
DROP TABLE workflow_alias;
-- +goose StatementEnd
