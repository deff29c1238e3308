-- Runs are found by their labels and by the text of their errors, and paged by the
-- time at which they began.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE run_label (
  run_id   TEXT COLLATE "C" NOT NULL,
  label    TEXT COLLATE "C" NOT NULL,
  value    TEXT COLLATE "C" NOT NULL,
  -- created_at of the run
  begun_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, label)
);
CREATE INDEX run_label_value ON run_label (label, value, begun_at, run_id);
INSERT INTO run_label (run_id, label, value, begun_at)
 SELECT r.id, j.key, j.value, r.created_at FROM run r, json_each_text(r.labels::json) j
 WHERE r.labels IS NOT NULL AND strpos(r.labels, '\u0000') = 0;

-- in lower case; NULL: no error
ALTER TABLE run ADD COLUMN error_text TEXT COLLATE "C";
UPDATE run SET error_text = left(lower((convert_from(error, 'UTF8')::json ->> 'code') || ': ' || (convert_from(error, 'UTF8')::json ->> 'message')), 4096)
 WHERE error IS NOT NULL AND strpos(convert_from(error, 'UTF8'), '\u0000') = 0;

DROP INDEX run_created;
CREATE INDEX run_created ON run (created_at, id);
DROP INDEX run_workflow;
CREATE INDEX run_workflow ON run (workflow, created_at, id);
DROP INDEX run_failed;
CREATE INDEX run_failed ON run (status, created_at, id) WHERE status <> 'COMPLETED' AND ended_at IS NOT NULL;
CREATE INDEX run_retried ON run (retried_from) WHERE retried_from IS NOT NULL;
CREATE INDEX run_open ON run (created_at, id) WHERE ended_at IS NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP INDEX run_open;
DROP INDEX run_retried;
DROP INDEX run_failed;
CREATE INDEX run_failed ON run (status, created_at) WHERE status IN ('FAILED', 'CANCELLED');
DROP INDEX run_workflow;
CREATE INDEX run_workflow ON run (workflow, created_at);
DROP INDEX run_created;
CREATE INDEX run_created ON run (created_at);
ALTER TABLE run DROP COLUMN error_text;
DROP TABLE run_label;
-- +goose StatementEnd
