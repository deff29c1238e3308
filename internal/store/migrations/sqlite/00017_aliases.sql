-- Names that stand for versions of workflows, and versions that take no new runs
-- (language rules C10 and S11).

-- +goose Up
CREATE TABLE workflow_alias (
  workflow   TEXT    NOT NULL,
  alias      TEXT    NOT NULL,
  version    TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  created_by TEXT    NOT NULL,
  updated_by TEXT    NOT NULL,
  PRIMARY KEY (workflow, alias)
) STRICT;

-- NULL: it is not.
ALTER TABLE definition ADD COLUMN deprecated_at INTEGER;
ALTER TABLE definition ADD COLUMN deprecated_by TEXT;
ALTER TABLE definition ADD COLUMN deprecated_reason TEXT;

-- +goose Down
ALTER TABLE definition DROP COLUMN deprecated_reason;
ALTER TABLE definition DROP COLUMN deprecated_by;
ALTER TABLE definition DROP COLUMN deprecated_at;
DROP TABLE workflow_alias;
